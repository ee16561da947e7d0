"""The vocabulary of the datastore: tables, access patterns, keys, timestamps and identifiers.

Code, documentation, IAM policies and tests follow from the declarations `access_patterns.AccessPattern` and `Table`.
`composite_keys` builds and splits keys. This package makes no calls.
"""
