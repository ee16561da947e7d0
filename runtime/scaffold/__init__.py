"""The generator of new systems: `gateway.py new`."""
