"""Servers that are compared with the gateway: in Node, with Strawberry, and by hand.

They share no code with the gateway, so that its optimizations do not affect them. The exception are the servers of
subscriptions in Python, which read the table's stream with the gateway's client (see `following`).
"""
