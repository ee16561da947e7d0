"""Cost analysis: estimates of the read units of operations before they run."""
