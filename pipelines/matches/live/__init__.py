"""Polling of live matches: which are polled, one tick of one match, and the events of what changed."""
