"""One request's view of the tables.

`store.Store` makes the calls of a request, meters them and honours its deadline. Point reads are batched by
`point_reads`, shared among requests by `read_cache` and cancelled with their last waiter by `dataloader`. `pagination`
and `cursors` make pages; `optimistic_locking` and `idempotent_writes` make writes safe to repeat.
"""
