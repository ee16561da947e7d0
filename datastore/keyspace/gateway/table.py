"""The table that the gateway keeps its own things in: answers of mutations, and documents that are known."""

from datastore.model.access_patterns import Table

GATEWAY = Table(name="gateway", partition="PK", sort="SK", ttl="expiresAt")
