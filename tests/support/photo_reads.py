"""Steps for the tests that read photos."""
