"""The addresses of DynamoDB in AWS: which hosts belong to AWS, and which endpoints serve the tables' streams.

AWS partitions (`aws`, `aws-cn`, ...), their regions and DNS suffixes come from botocore's data.

https://docs.aws.amazon.com/general/latest/gr/ddb.html
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/vpc-endpoints-dynamodb.html
"""

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import botocore.exceptions
from botocore import UNSIGNED

STREAMS_VARIABLE = "AWS_ENDPOINT_URL_DYNAMODB_STREAMS"
TABLES_VARIABLE = "AWS_ENDPOINT_URL_DYNAMODB"
# For each service an operation without parameters, to presign a URL with.
OPERATIONS = {"dynamodb": "list_tables", "dynamodbstreams": "list_streams"}
# DNS labels of hosts. A host of DynamoDB Streams may instead have the label `streams` before one of `TABLE_LABELS`:
# streams.dynamodb.eu-west-1.amazonaws.com.
TABLE_LABELS = frozenset({"dynamodb", "dynamodb-fips", "ddb", "ddb-fips"})
STREAM_LABELS = frozenset({"streams-dynamodb", "streams-dynamodb-fips", "dynamodb-streams", "dynamodb-streams-fips"})
HOST_LABELS = TABLE_LABELS | STREAM_LABELS


class EndpointUnknown(Exception):
    """An address in AWS cannot be used, or the address of DynamoDB Streams cannot be derived. The message says what to
    set."""


class AwsHost(NamedTuple):
    """The properties of a DynamoDB host that its name states."""

    region: str
    fips: bool
    dual_stack: bool
    #: Whether it is a VPC endpoint (PrivateLink). The host of DynamoDB Streams does not follow from its name.
    is_vpc_endpoint: bool


class Addresses(NamedTuple):
    """Scheme, host and port of each service."""

    tables: str
    streams: str


def is_aws_url(url: str) -> bool:
    """Return whether the URL is one of DynamoDB in AWS, and not of another server there, such as an emulator on EC2."""
    return _split_host(url) is not None


def parse_aws_host(url: str) -> AwsHost:
    """Return the properties of the DynamoDB host in a URL.

    Raises:
        EndpointUnknown: The host is not in AWS, names no region, or is a host of DynamoDB Streams.
    """
    found = _split_host(url)
    if found is None:
        raise EndpointUnknown(f"{url} is not an address of DynamoDB in AWS.")
    labels, suffix = found
    is_vpc_endpoint = labels[-1] == "vpce"
    region = labels[-2 if is_vpc_endpoint else -1]
    partition = _partition(region)
    if partition is None or suffix not in _suffixes(partition):
        raise EndpointUnknown(f"The host name of the store {url} names no AWS region that belongs to its domain.")
    if not TABLE_LABELS.intersection(labels) or "streams" in labels:
        raise EndpointUnknown(
            f"{url} is the address of DynamoDB Streams: use the address of DynamoDB, and set {STREAMS_VARIABLE}."
        )
    dual_stack = suffix == partition["outputs"]["dualStackDnsSuffix"]
    return AwsHost(region, any(label.endswith("-fips") for label in labels), dual_stack, is_vpc_endpoint)


def addresses(boto_session: Any, url: str | None) -> Addresses:
    """Return the addresses of DynamoDB and DynamoDB Streams for a boto3 session.

    `url` is the address of DynamoDB; if None, botocore derives it. The address of DynamoDB Streams is the
    configured one, else botocore derives it.

    Raises:
        EndpointUnknown: An address cannot be used or derived.
        botocore.exceptions.NoRegionError: No region is configured.
    """
    if url is None:
        return Addresses(_resolve(boto_session, "dynamodb"), _resolve(boto_session, "dynamodbstreams"))
    host = parse_aws_host(url)
    if host.is_vpc_endpoint and not _streams_are_configured(boto_session):
        raise EndpointUnknown(
            f"{url} is a VPC endpoint, and the address of DynamoDB Streams does not follow from it: "
            f"set {STREAMS_VARIABLE} to its URL."
        )
    variants = {"use_fips_endpoint": host.fips, "use_dualstack_endpoint": host.dual_stack}
    try:
        return Addresses(url, _resolve(boto_session, "dynamodbstreams", **variants))
    except botocore.exceptions.EndpointVariantError:
        raise EndpointUnknown(f"botocore has no DynamoDB Streams for {url}: set {STREAMS_VARIABLE}.") from None


def aws_partition_of(region: str) -> str:
    """Return the AWS partition of a region, "aws" for an unknown region."""
    found = _partition(region)
    return "aws" if found is None else str(found["id"])


def _resolve(boto_session: Any, service: str, **settings: Any) -> str:
    """Return the address to which botocore would send a request.

    Raises:
        EndpointUnknown: The configured URL has a path, a query or a user.
    """
    import botocore.config  # imported late: it loads most of botocore, which a local store does not use

    # Unsigned: resolving an address needs no credentials.
    client = boto_session.client(service, config=botocore.config.Config(signature_version=UNSIGNED, **settings))
    # Not `client.meta.endpoint_url`, which differs for the streams of dual-stack endpoints.
    url = client.generate_presigned_url(OPERATIONS[service])
    parts = urlsplit(url)
    if parts.path != "/" or parts.query or "@" in parts.netloc:
        variable = TABLES_VARIABLE if service == "dynamodb" else STREAMS_VARIABLE
        raise EndpointUnknown(
            f"{variable}, AWS_ENDPOINT_URL or the profile's endpoint_url is {client.meta.endpoint_url!r}, but requests "
            "to DynamoDB go to the path / only: set it to a scheme, a host and a port."
        )
    return f"{parts.scheme}://{parts.netloc}"


def _streams_are_configured(boto_session: Any) -> bool:
    """Return whether the environment or the profile sets the streams' endpoint."""
    if STREAMS_VARIABLE in os.environ:
        return True
    derived = _resolve(boto_session, "dynamodbstreams", ignore_configured_endpoint_urls=True)
    return _resolve(boto_session, "dynamodbstreams") != derived


@lru_cache(maxsize=64)
def _split_host(url: str) -> tuple[list[str], str] | None:
    """Return the labels before the DNS suffix of an AWS partition, and the suffix; None if not DynamoDB's."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:  # brackets without an address
        return None
    if not HOST_LABELS.intersection(host.split(".")):
        return None
    for suffix in sorted(_all_suffixes(), key=len, reverse=True):
        if host.endswith(f".{suffix}"):
            labels = host.removesuffix(f".{suffix}").split(".")
            return (labels, suffix) if HOST_LABELS.intersection(labels) else None
    return None


def _all_suffixes() -> set[str]:
    return {suffix for partition in _partitions() for suffix in _suffixes(partition)}


def _suffixes(partition: Mapping[str, Any]) -> Iterator[str]:
    yield partition["outputs"]["dnsSuffix"]
    yield partition["outputs"]["dualStackDnsSuffix"]


def _partition(region: str) -> Mapping[str, Any] | None:
    """Return the AWS partition that lists the region, or whose pattern of region names matches.

    botocore may not list a new region yet.
    """
    listing = (partition for partition in _partitions() if region in partition["regions"])
    matching = (partition for partition in _partitions() if re.fullmatch(partition["regionRegex"].strip("^$"), region))
    return next(listing, None) or next(matching, None)


@cache
def _partitions() -> list[Mapping[str, Any]]:
    import botocore.loaders  # imported late, as above

    found: list[Mapping[str, Any]] = botocore.loaders.create_loader().load_data("partitions")["partitions"]
    return found
