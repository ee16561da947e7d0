"""Persisted documents: trusted documents with their manifests, and automatic persisted queries."""
