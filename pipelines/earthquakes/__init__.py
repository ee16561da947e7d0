"""Ingest of USGS feeds, and the consumer that keeps the daily statistics."""
