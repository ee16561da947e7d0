"""The vocabulary of the datastore: tables, access patterns, keys, timestamps and identifiers.

`access_patterns.AccessPattern` and `Table` are the declarations from which code, documentation, IAM policies and tests
follow. `composite_keys` builds and splits keys. Nothing here makes a call.
"""
