"""Resolvers of live cricket: a module for each table, and the subscriptions."""
