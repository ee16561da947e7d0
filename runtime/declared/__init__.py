"""The declarations of all settings, from which docs/settings.md follows."""
