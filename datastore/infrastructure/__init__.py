"""Infrastructure derived from the declared tables and access patterns: tables, alarms and IAM policies.

`cloudformation` and `terraform` export it. `tables` and `table_updates` create and change tables directly.
"""
