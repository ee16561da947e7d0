"""Servers that the gateway is measured against: in Node, with Strawberry, and by hand.

They share nothing with the gateway, so that what makes it faster leaves them as they are. Those of subscriptions in
Python are an exception: they read the table's stream with the gateway's client (see `following`).
"""
