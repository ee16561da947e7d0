"""What the gateway and its DynamoDB client cost: `python -m benchmarks` prints one table (see docs/benchmarks.md)."""

import os

from datastore.engine.access_key import VARIABLE, new_key

# The engine of a run, and all that are compared on it, in whatever process and language, take the key from here.
ENGINE_KEY = os.environ.setdefault(VARIABLE, new_key())
