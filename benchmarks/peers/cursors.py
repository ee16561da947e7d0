"""Cursors as the gateway seals them: an index position in base64url, signed, and bound to its list."""

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


def seal(position: Mapping[str, Any], bound: bytes) -> str:
    """A cursor for a position, given as DynamoDB tells keys, its names in alphabetical order."""
    content = orjson.dumps(position)
    tag = hmac.digest(KEY, bound + content, "sha256")[:TAG_BYTES]
    return urlsafe_b64encode(tag + content).rstrip(b"=").decode()


def binding(field: str, arguments: Mapping[str, Any]) -> bytes:
    bound = field.encode() + b"?" + orjson.dumps(arguments)
    return len(bound).to_bytes(4, "big") + bound


def sealer(of: tuple[str, tuple[str, ...]], arguments: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], str]:
    """Seals plain items of one list."""
    field, names = of
    bound = binding(field, arguments)
    return lambda item: seal({name: {"S": item[name]} for name in names}, bound)
