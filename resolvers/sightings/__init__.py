"""Resolvers of street sightings."""
