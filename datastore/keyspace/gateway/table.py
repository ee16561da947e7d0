"""The table `gateway`: idempotency records and persisted documents."""

from datastore.model.access_patterns import Table

GATEWAY = Table(name="gateway", partition="PK", sort="SK", ttl="expiresAt")
