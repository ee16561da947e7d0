"""Faults of which each gives the wire client another error, and stores behind them."""

from dataclasses import replace

from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import AccessPattern, Who
from datastore.session.metering import Deadline
from datastore.session.store import Store
from tests.support.fault_proxy import corrupt, cut_body, cut_json, damage, garble, plain_error, refuse, reset
from tests.support.served import NOON

PUT_NEW = AccessPattern("T-1", "", BLIP, ("PutItem",), Who.ANY, condition="attribute_not_exists(PK)")
READ = AccessPattern("T-2", "", BLIP, ("GetItem",), Who.ANY)
CONSISTENT = replace(READ, consistent=True)


CONFLICT = refuse(
    400,
    "TransactionCanceledException",
    CancellationReasons=[{"Code": "None"}, {"Code": "TransactionConflict", "Message": "x"}],
)
TRANSIENT = {
    "throttled": refuse(400, "ThrottlingException"),
    "over provisioned throughput": refuse(400, "ProvisionedThroughputExceededException"),
    "over the account's limit": refuse(400, "RequestLimitExceeded"),
    "another transaction": refuse(400, "TransactionConflictException"),
    "the same transaction": refuse(400, "TransactionInProgressException"),
    "another region's write": refuse(400, "ReplicatedWriteConflictException"),
    "throttled elsewhere": refuse(400, "Throttling"),
    "throttled as botocore knows it": refuse(400, "RequestThrottledException"),
    "not heard in time": refuse(400, "RequestTimeout"),
    "not heard in time, in other words": refuse(408, "RequestTimeoutException"),
    "cancelled for a conflict": CONFLICT,
    "429": plain_error(429),
    "500": refuse(500, "InternalServerError"),
    "503": plain_error(503),
    "reset": reset,
    "wrong checksum": damage,
    "corrupted": corrupt,
    "no checksum": garble,
    "cut body": cut_body,
    "cut JSON": cut_json,
}
FINAL = {
    "ValidationException": refuse(400, "ValidationException"),
    "ResourceNotFoundException": refuse(400, "ResourceNotFoundException"),
    "AccessDeniedException": refuse(400, "AccessDeniedException"),
    "UnrecognizedClientException": refuse(400, "UnrecognizedClientException"),
    "ItemCollectionSizeLimitExceededException": refuse(400, "ItemCollectionSizeLimitExceededException"),
    "IdempotentParameterMismatchException": refuse(400, "IdempotentParameterMismatchException"),
    "403": plain_error(403),
    "400": plain_error(400, "[]"),
    "302": plain_error(302, location="http://127.0.0.1:1/"),
}


def store_on(client: Client, database: Database, seconds: float = 10) -> Store:
    tokens = (f"{database.prefix}{number}" for number in range(1000))
    return Store(
        client, prefix=database.prefix, deadline=Deadline(seconds), token=lambda: next(tokens), now=lambda: NOON
    )
