"""Benchmarks of the gateway and its DynamoDB client: `python -m benchmarks` prints them (see docs/benchmarks.md)."""

import os

from datastore.engine.access_key import VARIABLE, new_key

# The engine of a run and all compared clients, in any process and language, read the key from the environment.
ENGINE_KEY = os.environ.setdefault(VARIABLE, new_key())
