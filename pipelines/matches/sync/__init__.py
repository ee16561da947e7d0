"""Sync jobs: write the provider's leagues, teams and fixtures where they differ from the stored ones."""
