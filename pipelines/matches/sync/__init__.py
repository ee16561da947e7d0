"""Sync jobs: leagues, teams and fixtures of the provider, written where they differ from what is stored."""
