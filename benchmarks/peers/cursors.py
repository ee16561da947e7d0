"""Cursors in the gateway's format: an index position in base64url, signed and bound to its list."""

import hmac
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any

import orjson

TAG_BYTES = 16
POSTS_BY_AUTHOR = "FEED-002 Query.postsByAuthor", ("GSI1PK", "GSI1SK", "PK", "SK")
HOME_FEED = "FEED-003 Query.homeFeed", ("GSI3PK", "GSI3SK", "PK", "SK")

KEY = hmac.digest(os.environ["GATEWAY_SECRET"].encode(), b"cursor", "sha256")


def sign(position: Mapping[str, Any], bound: bytes) -> str:
    """Return the cursor of a position in DynamoDB's JSON, with its names in alphabetical order."""
    content = orjson.dumps(position)
    tag = hmac.digest(KEY, bound + content, "sha256")[:TAG_BYTES]
    return urlsafe_b64encode(tag + content).rstrip(b"=").decode()


def binding(field: str, arguments: Mapping[str, Any]) -> bytes:
    bound = field.encode() + b"?" + orjson.dumps(arguments)
    return len(bound).to_bytes(4, "big") + bound


def signer(of: tuple[str, tuple[str, ...]], arguments: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that returns the cursor of a plain item of one list."""
    field, names = of
    bound = binding(field, arguments)
    return lambda item: sign({name: {"S": item[name]} for name in names}, bound)
