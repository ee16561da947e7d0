"""Signing of boto3 clients at the store's time. botocore itself always uses the clock of this machine."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

from datastore.dynamodb.retry.classify import SIGNATURE_CODES
from datastore.dynamodb.sigv4 import MAX_SKEW_SECONDS
from datastore.dynamodb.store_clock import StoreClock

STAMP = "%Y%m%dT%H%M%SZ"
SIGNED_SKEW = "gateway_signed_skew"
# The maximum number of attempts of a request that is signed again, whatever dates its responses have.
MAX_ATTEMPTS = 5

logger = logging.getLogger(__name__)


class _SigningContext(dict[str, Any]):
    """botocore's signing state of a request, with the store's time."""

    def __init__(self, context: dict[str, Any], skew: float) -> None:
        super().__init__(context)
        self._skew = timedelta(seconds=skew)

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "timestamp":
            value = (datetime.strptime(value, STAMP).replace(tzinfo=UTC) + self._skew).strftime(STAMP)
        super().__setitem__(name, value)


def sign_at_store_time(client: Any, clock: StoreClock) -> None:
    """Make a boto3 client sign requests, URLs and forms by the clock, and set the clock by the Date of its responses.

    A request that the store refused is sent again if it was signed four minutes or more from the response's Date.
    """

    def sign(request: Any, **_: Any) -> None:
        skew = clock.skew
        request.context[SIGNED_SKEW] = skew
        request.context = _SigningContext(request.context, skew)

    def answered(response: Any, request_dict: dict[str, Any], attempts: int, **_: Any) -> int | None:
        if response is None:  # the store sent no response
            return None
        http, parsed = response
        refused = parsed.get("Error", {}).get("Code") in SIGNATURE_CODES
        clock.observe(http.headers.get("date"), at_once=refused)
        signed = request_dict["context"].get(SIGNED_SKEW, clock.skew)
        if not refused or attempts >= MAX_ATTEMPTS or abs(clock.skew - signed) < MAX_SKEW_SECONDS:
            return None
        logger.warning(
            "%s refused a request that was signed %d seconds from its time. Requests are signed at the store's time "
            "from now on: synchronize the clock of this machine.",
            client.meta.service_model.service_name,
            abs(clock.skew - signed),
        )
        return 0

    service = client.meta.service_model.service_id.hyphenize()
    client.meta.events.register_first(f"before-sign.{service}", sign)
    # botocore repeats a request after the seconds that a handler returns; None leaves the decision to botocore.
    client.meta.events.register_first(f"needs-retry.{service}", answered)
