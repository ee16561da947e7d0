"""Resolvers: one plain async function for each field that authorizes, asks the datastore and returns.

A package for each system, and `shared` for what all of them use. Resolvers know no HTTP.
"""
