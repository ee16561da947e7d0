"""Modules that the resolvers of all systems share.

`context.Context` is the context of a resolver, `authorization.require` checks the caller, `validation` checks inputs,
`paging` creates connections, and `event_source` creates subscriptions.
"""
