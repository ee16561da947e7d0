"""Fingerprints of the settings that all gateways of an installation have to share.

A fingerprint is an HMAC with a key that is derived from a secret. It reveals neither the secret nor the setting, and
has 64 bits: it distinguishes settings, and proves nothing to an attacker.
"""

import hmac
from collections.abc import Iterable
from typing import Any

import orjson

from datastore.gateway.running_gateways import SettingsFingerprints
from server.settings import Settings

SECRET, USER_ID_SECRET = "GATEWAY_SECRET", "GATEWAY_USER_ID_SECRET"
HEX_DIGITS = 16
# A gateway stores the fingerprints of its settings for this many of its secrets. A rotation needs two.
MOST_SECRETS = 3


def fingerprints_of(settings: Settings) -> SettingsFingerprints:
    """Return the fingerprints of a gateway's settings."""
    secrets = tuple(dict.fromkeys((settings.secret, *settings.other_secrets)))
    user_id_secrets = dict.fromkeys((settings.user_id_secret or settings.secret, *secrets))
    names = [_digest(secret, "secret") for secret in secrets]
    user_ids = tuple(_digest(secret, "secret") for secret in user_id_secrets)
    shared = _shared_settings(settings)
    return SettingsFingerprints(
        names[0],
        tuple(names),
        user_ids[0],
        user_ids,
        {
            name: {variable: _digest(secret, variable, value) for variable, value in shared.items()}
            for name, secret in zip(names[:MOST_SECRETS], secrets, strict=False)
        },
    )


def shared_variables(settings: Settings) -> tuple[str, ...]:
    """Return the variables whose settings are compared."""
    return (SECRET, USER_ID_SECRET, *_shared_settings(settings))


def _shared_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings other than secrets that have to agree, by their variable.

    Of services that each host may reach at another address, only the presence has to agree.
    """
    capacity, documents = settings.capacity, settings.documents
    return {
        "GATEWAY_JWKS_URL": settings.jwks_url,
        "GATEWAY_JWT_ISSUER": settings.issuer,
        "GATEWAY_JWT_AUDIENCE": settings.audience,
        "GATEWAY_ROLE_CLAIM": settings.role_claim,
        "GATEWAY_AREAS": sorted(settings.areas),
        "GATEWAY_CATEGORIES": sorted(settings.categories),
        "GATEWAY_INGEST_HOSTS": sorted(settings.ingest_hosts),
        "GATEWAY_ALLOWED_ORIGINS": sorted(settings.allowed_origins),
        "GATEWAY_PHOTO_BUCKET": settings.photo_bucket,
        "GATEWAY_PHOTO_METADATA": settings.photo_metadata,
        "GATEWAY_HTTP_PROFILE": settings.http_profile,
        "GATEWAY_EXPLAIN": settings.explain,
        "GATEWAY_DOCUMENTS_MODE": documents.mode,
        "GATEWAY_APQ": documents.automatic,
        "GATEWAY_INTROSPECTION": documents.introspection,
        "GATEWAY_INCREMENTAL": documents.incremental,
        "GATEWAY_FEDERATION": documents.federation,
        "GATEWAY_MAX_COST": str(documents.max_cost),
        "GATEWAY_BUDGET_UNITS": capacity.budget_units,
        "GATEWAY_BUDGET_UNITS_PER_SECOND": capacity.budget_units_per_second,
        "GATEWAY_ANONYMOUS_BUDGET_UNITS": capacity.anonymous_budget_units,
        "GATEWAY_ANONYMOUS_BUDGET_UNITS_PER_SECOND": capacity.anonymous_budget_units_per_second,
        "GATEWAY_REDIS_URL": capacity.redis_url is not None,
        "GATEWAY_BUS": settings.bus is not None,
        "GATEWAY_SEARCH_URL": settings.search_url is not None,
        "GATEWAY_S3_URL": settings.s3_url is not None,
    }


def differences(own: SettingsFingerprints, other: SettingsFingerprints) -> set[str]:
    """Return the variables whose settings do not agree.

    Two secrets agree if each gateway accepts the values of the other, as in each step of a rotation.
    """
    if not _accept(own.secret, own.accepted, other.secret, other.accepted):
        return {SECRET}  # nothing else can be compared
    found = set()
    if not _accept(own.user_ids, own.accepted_user_ids, other.user_ids, other.accepted_user_ids):
        found.add(USER_ID_SECRET)
    for secret in own.settings.keys() & other.settings.keys():
        mine, others = own.settings[secret], other.settings[secret]
        # A gateway of another release may compare other settings.
        found |= {name for name in mine.keys() & others.keys() if mine[name] != others[name]}
    return found


def _accept(one: str, accepted_by_one: Iterable[str], other: str, accepted_by_other: Iterable[str]) -> bool:
    return one in accepted_by_other and other in accepted_by_one


def _digest(secret: str, variable: str, value: Any = None) -> str:
    key = hmac.digest(secret.encode(), b"fingerprint of settings", "sha256")
    text = orjson.dumps([variable, value])
    return hmac.digest(key, text, "sha256").hex()[:HEX_DIGITS]
