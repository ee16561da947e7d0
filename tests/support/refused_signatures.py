"""Responses of AWS to requests whose signature or clock is wrong."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from aiohttp import web

from tests.support.fault_proxy import Fault, Proxy, Seen, forward, refuse

MOST_SKEW = timedelta(minutes=5)


def signed_at(seen: Seen) -> datetime:
    return datetime.strptime(seen.request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


def clock_off_by(
    offset: timedelta,
    code: str = "InvalidSignatureException",
    *,
    date: str | None = None,
    then: Fault = forward,
) -> Fault:
    """Behave as AWS at another time: requests signed within five minutes of it are accepted."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        now = datetime.now(UTC) + offset
        taken = abs(now - signed_at(seen)) < MOST_SKEW
        response = await (then if taken else refuse(400, code))(proxy, seen)
        response.headers["Date"] = format_datetime(now, usegmt=True) if date is None else date
        return response

    return answer
