"""Subscriptions: equal subscriptions share one source and one execution of each event.

`manager` begins them, `broadcast_group` delivers events, `replay` serves those that resume.
"""
