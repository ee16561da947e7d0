"""What the declarations come to in production: tables, alarms and policies, for CloudFormation or Terraform.

A module for each format, and one for what both say: `alarms` and `policies`. `tables` creates tables itself.
"""
