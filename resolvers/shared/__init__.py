"""What the resolvers of all systems share.

`context.Context` is what a resolver receives, `authorization.require` checks the caller, `validation` checks inputs,
`paging` makes connections, `node_ids` reads by global id, and `event_source` makes subscriptions.
"""
