"""Fuzzing of everything that reads what strangers send, in one process and in virtual time.

A target is a function from bytes to a verdict. The bytes are decisions (`choices`), from which a grammar makes an
example that people can read. So the same target runs under Hypothesis in the test suite, and under `make fuzz`.
"""
