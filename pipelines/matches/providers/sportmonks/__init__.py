"""The Cricket API of SportMonks as a provider."""
