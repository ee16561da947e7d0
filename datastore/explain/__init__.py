"""The report of an explained operation: which field caused which call, and the units that the call consumed.

`datastore.session.read_trace` records the fields while the operation is executed.
"""
