"""The commands of `gateway.py`: a module for each group, and the options that they share."""
