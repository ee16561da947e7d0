"""DynamoDB's addresses in AWS: which hosts are AWS's own, and where the streams of their tables are.

Partitions, regions and domains come from botocore's data.

https://docs.aws.amazon.com/general/latest/gr/ddb.html
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/vpc-endpoints-dynamodb.html
"""

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import botocore.config
import botocore.exceptions
import botocore.loaders
from botocore import UNSIGNED

STREAMS_VARIABLE = "AWS_ENDPOINT_URL_DYNAMODB_STREAMS"
TABLES_VARIABLE = "AWS_ENDPOINT_URL_DYNAMODB"
OPERATIONS = {"dynamodb": "list_tables", "dynamodbstreams": "list_streams"}
# Labels of hosts. Streams also have the label "streams" before one of the tables'.
TABLES = frozenset({"dynamodb", "dynamodb-fips", "ddb", "ddb-fips"})
STREAMS = frozenset({"streams-dynamodb", "streams-dynamodb-fips", "dynamodb-streams", "dynamodb-streams-fips"})


class EndpointUnknown(Exception):
    """An address in AWS cannot be used, or what belongs to it cannot be derived; the message says what to set."""


class AwsHost(NamedTuple):
    """What the name of a host of DynamoDB says. In a VPC (`private`) it says nothing of the streams' host."""

    region: str
    fips: bool
    dual_stack: bool
    private: bool


class Addresses(NamedTuple):
    """Scheme, host and port of each service."""

    tables: str
    streams: str


def is_aws(url: str) -> bool:
    """Whether DynamoDB in AWS is at this URL. Other servers that run in AWS, such as an emulator on EC2, are not it."""
    return _split_host(url) is not None


def aws_host(url: str) -> AwsHost:
    """Raises `EndpointUnknown` where the name does not tell the region, or is that of the streams."""
    found = _split_host(url)
    if found is None:
        raise EndpointUnknown(f"{url} is not an address of DynamoDB in AWS.")
    labels, suffix = found
    private = labels[-1] == "vpce"
    region = labels[-2 if private else -1]
    partition = _partition(region)
    if partition is None or suffix not in _suffixes(partition):
        raise EndpointUnknown(f"The name of the store {url} tells no AWS region of that domain.")
    if not TABLES.intersection(labels) or "streams" in labels:
        raise EndpointUnknown(
            f"{url} is the address of DynamoDB Streams: give the store that of DynamoDB, and set {STREAMS_VARIABLE}."
        )
    dual_stack = suffix == partition["outputs"]["dualStackDnsSuffix"]
    return AwsHost(region, any(label.endswith("-fips") for label in labels), dual_stack, private)


def addresses(session: Any, url: str | None) -> Addresses:
    """Where DynamoDB and its streams are. `url` is the store's, None where botocore derives it.

    The streams' is configured, or botocore derives it. Raises `EndpointUnknown`, and botocore's `NoRegionError`.
    """
    if url is None:
        return Addresses(_resolve(session, "dynamodb"), _resolve(session, "dynamodbstreams"))
    host = aws_host(url)
    if host.private and not _streams_are_configured(session):
        raise EndpointUnknown(
            f"{url} is a VPC endpoint, whose name does not tell that of DynamoDB Streams: "
            f"set {STREAMS_VARIABLE} to its URL."
        )
    variants = {"use_fips_endpoint": host.fips, "use_dualstack_endpoint": host.dual_stack}
    try:
        return Addresses(url, _resolve(session, "dynamodbstreams", **variants))
    except botocore.exceptions.EndpointVariantError:
        raise EndpointUnknown(f"botocore knows no DynamoDB Streams for {url}: set {STREAMS_VARIABLE}.") from None


def admin_settings(url: str | None) -> tuple[str | None, dict[str, Any]]:
    """Return the `endpoint_url`, if any, and the settings of `Config` with which boto3 reaches the same tables.

    boto3 refuses an `endpoint_url` together with `use_dualstack_endpoint`, which the environment may set. For a
    dual-stack address this therefore returns the setting without the address.
    """
    if url is None:
        return None, {"account_id_endpoint_mode": "disabled"}
    host = aws_host(url)
    if not host.dual_stack:
        return url, {"use_fips_endpoint": False, "use_dualstack_endpoint": False}
    wish = {"use_fips_endpoint": host.fips, "use_dualstack_endpoint": True, "account_id_endpoint_mode": "disabled"}
    return None, wish | {"ignore_configured_endpoint_urls": True}


def partition_of(region: str) -> str:
    """The part of AWS that a region is in; the one for everybody where it is not known."""
    found = _partition(region)
    return "aws" if found is None else str(found["id"])


def _resolve(session: Any, service: str, **settings: Any) -> str:
    """Where botocore would send a request. Unsigned, since an address takes no credentials."""
    client = session.client(service, config=botocore.config.Config(signature_version=UNSIGNED, **settings))
    # Not `client.meta.endpoint_url`: that is another for the streams of dual-stack endpoints.
    url = client.generate_presigned_url(OPERATIONS[service])
    parts = urlsplit(url)
    if parts.path != "/" or parts.query or "@" in parts.netloc:
        variable = TABLES_VARIABLE if service == "dynamodb" else STREAMS_VARIABLE
        raise EndpointUnknown(
            f"{variable}, AWS_ENDPOINT_URL or the profile's endpoint_url is {client.meta.endpoint_url!r}, and requests "
            "to DynamoDB go to no other path than /: set scheme, host and port alone."
        )
    return f"{parts.scheme}://{parts.netloc}"


def _streams_are_configured(session: Any) -> bool:
    """Whether environment or profile set the streams' endpoint."""
    if STREAMS_VARIABLE in os.environ:
        return True
    derived = _resolve(session, "dynamodbstreams", ignore_configured_endpoint_urls=True)
    return _resolve(session, "dynamodbstreams") != derived


@lru_cache(maxsize=64)
def _split_host(url: str) -> tuple[list[str], str] | None:
    """The labels before the domain of a partition, and that domain, of a host that serves DynamoDB."""
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:  # brackets without an address
        return None
    for suffix in sorted(_all_suffixes(), key=len, reverse=True):
        if host.endswith(f".{suffix}"):
            labels = host.removesuffix(f".{suffix}").split(".")
            return (labels, suffix) if (TABLES | STREAMS).intersection(labels) else None
    return None


def _all_suffixes() -> set[str]:
    return {suffix for partition in _partitions() for suffix in _suffixes(partition)}


def _suffixes(partition: Mapping[str, Any]) -> Iterator[str]:
    yield partition["outputs"]["dnsSuffix"]
    yield partition["outputs"]["dualStackDnsSuffix"]


def _partition(region: str) -> Mapping[str, Any] | None:
    """That which lists the region, or else has regions called so: new ones come before botocore lists them."""
    known = (one for one in _partitions() if region in one["regions"])
    alike = (one for one in _partitions() if re.fullmatch(one["regionRegex"].strip("^$"), region))
    return next(known, None) or next(alike, None)


@cache
def _partitions() -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = botocore.loaders.create_loader().load_data("partitions")["partitions"]
    return found
