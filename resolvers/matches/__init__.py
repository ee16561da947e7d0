"""Resolvers of cricket: a module for each table, and the subscriptions."""
