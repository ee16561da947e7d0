"""Resolvers: a function per field, which checks the caller and the arguments and calls the datastore.

Each system has a package; `shared` contains the modules that all of them use. Resolvers are independent of HTTP.
"""
