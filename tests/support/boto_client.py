"""A client of boto3, with which tests read and write as another program does."""

from typing import Any

import boto3

from datastore.database import LOCAL_ACCESS_KEY, LOCAL_SECRET, Database
from datastore.engine.access_key import key_in_environment


def boto_client(database: Database) -> Any:
    """Return a blocking client of the database's tables."""
    endpoint = database.endpoint
    key = database.engine.key if database.engine is not None else key_in_environment() or LOCAL_ACCESS_KEY
    return boto3.client(
        "dynamodb",
        endpoint_url=endpoint.tables(),
        region_name=endpoint.region,
        aws_access_key_id=key,
        aws_secret_access_key=LOCAL_SECRET,
    )
