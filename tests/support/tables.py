"""Descriptions of tables."""

from typing import Any

from datastore.database import Database
from datastore.infrastructure.tables import describe_ttl
from datastore.keyspace import TABLES
from datastore.model.access_patterns import Index, Table

PLAIN = Table("plain", "pk", "sk")
RICH = Table(
    "rich-and-rare",
    "pk",
    "sk",
    indexes=(
        Index("ByColour", "colour", "weight", "N", projection=("name", "price")),
        Index("ByWeight", "pk", "weight", "N", projection="KEYS_ONLY"),
    ),
    ttl="until",
    stream="NEW_AND_OLD_IMAGES",
)
ALL = (*TABLES, PLAIN, RICH)


def described_shape(described: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the declared part of a description: without times, sizes and ids."""
    kept = ("AttributeDefinitions", "KeySchema", "StreamSpecification")
    return {
        "TableName": described["TableName"].removeprefix(prefix),
        "BillingMode": described["BillingModeSummary"]["BillingMode"],
        **{name: described[name] for name in kept if name in described},
        "AttributeDefinitions": sorted(described["AttributeDefinitions"], key=str),
        "GlobalSecondaryIndexes": sorted(
            [
                {name: index[name] for name in ("IndexName", "KeySchema", "Projection")}
                for index in described.get("GlobalSecondaryIndexes", ())
            ],
            key=str,
        ),
    }


async def ttl(database: Database, table: Table) -> dict[str, Any]:
    name = database.prefix + table.name
    return await describe_ttl(database.client, name)
