"""Polling of live matches: the active list, one tick of one match, and the events of a change."""
