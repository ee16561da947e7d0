"""Examples of compiled execution, and a benchmark. They are not in the package that is published."""
