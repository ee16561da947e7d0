"""The protocol between the sources of events and the server that delivers them.

A resolver returns a `SharedSource` or an `UnsharedSource` (module `event_source`). The server iterates it and reads
from `SubscriptionProgress` (module `resume_position`) where a client may resume.
"""
