"""The protocol between the sources of events and the server that delivers them.

A resolver returns an `EventSource` (module `event_source`). The server opens it, and receives its `Delivery` values
(module `delivery`): each has an event and the position from which a client that has received it may resume.
"""
