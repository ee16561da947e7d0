"""Processes: what a gateway holds while it serves, its background jobs, the command line and the supervisor."""
