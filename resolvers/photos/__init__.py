"""Resolvers of the photo library: a module for each entity."""
