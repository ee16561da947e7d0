"""Subscriptions: they share streams of events, and the execution of each event.

`manager` starts them, `broadcast_group` reads a stream, `fan_out` delivers its events to the members of each
`audience`, and `replay` sends clients that resume the events they missed.
"""
