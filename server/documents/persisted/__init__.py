"""Persisted documents: trusted documents, automatic persisted queries and their manifests."""
