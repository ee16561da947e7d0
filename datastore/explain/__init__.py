"""Explanations of operations: which field caused which call, and what it consumed.

`trace` notes the fields that ask, `report` makes the report that `X-Explain` returns.
"""
