"""Resolvers of the social feed: a module for each entity."""
