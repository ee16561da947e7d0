"""One request's view of the tables.

`store.Store` makes the calls of a request, meters them and honours its deadline. `point_reads` batches point reads,
`request_reads` shares them with other requests of the process, and `dataloader` cancels them with their last waiter.
`pagination` and `cursors` make pages. `optimistic_locking` and `writes` make writes safe to repeat.
"""
