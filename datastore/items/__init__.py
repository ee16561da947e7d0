"""Declarations of stored items, from which their decoders, encoders, keys and input checks follow."""
