"""Subscriptions: equal subscriptions share one source and one execution of each event.

`manager` starts them, `broadcast_group` delivers events, `replay` sends clients that resume the events they missed.
"""
