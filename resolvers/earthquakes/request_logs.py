"""Request logs: QUAKE-3 and QUAKE-4."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Unpack

from datastore.earthquakes.earthquakes import LOG_WRITE_UNITS, LogType, RequestLog
from datastore.errors import BadCursor, BadUserInput, DomainError, Internal, Throttled, Timeout, Unavailable
from datastore.keyspace import earthquakes as keys
from datastore.model.access_patterns import Arguments
from datastore.model.composite_keys import split
from datastore.session.pagination import Page, SortOrder
from resolvers.earthquakes.query_window import Window
from resolvers.shared.arguments import argument
from resolvers.shared.context import Context, Info
from resolvers.shared.paging import Connection, Paging, connection_of, paged_in

ROUTE = "graphql/earthquakes"
# The assumed number of logs for each log of an ingest. Nearly all logs are of queries.
LOGS_PER_INGEST = 20.0
CANCELLED = "CANCELLED"
# The HTTP statuses that request logs contain, by error code.
STATUS = {
    BadUserInput.code: 400,
    BadCursor.code: 400,
    CANCELLED: 499,
    Throttled.code: 503,
    Unavailable.code: 503,
    Timeout.code: 504,
}

# The codes of rejected arguments.
REJECTIONS = (BadUserInput.code, BadCursor.code)

Day = Annotated[date | None, argument("The UTC day of the requests; by default today.")]
Type = Annotated[LogType | None, argument("The kind of requests; by default both.")]


@dataclass(slots=True)
class LoggedQuery:
    """The details of a query for its request log. Unknown details, and those of rejected arguments, are None."""

    page_size: int | None = None
    window: Window | None = None
    min_magnitude: float | None = None
    page: Page | None = None
    route: str = ROUTE


@contextmanager
def logged(context: Context, query: LoggedQuery) -> Iterator[LoggedQuery]:
    """Write a request log when the query ends. An operation writes at most one log of rejected arguments."""
    started = time.perf_counter()
    error: str | None = None
    try:
        yield query
    except DomainError as problem:
        error = problem.code
        raise
    except asyncio.CancelledError:
        error = CANCELLED
        raise
    except Exception:
        error = Internal.code
        raise
    finally:
        if error not in REJECTIONS or not context.has_logged_rejection:
            context.has_logged_rejection |= error in REJECTIONS
            log = _log(context, query, round((time.perf_counter() - started) * 1000), error)
            if context.services.request_logs.add(log):
                context.meter.defer_writes(LOG_WRITE_UNITS)


def _log(context: Context, query: LoggedQuery, latency_ms: int, error: str | None) -> RequestLog:
    window, page = query.window, query.page
    return RequestLog(
        log_type=LogType.QUERY,
        request_id=context.services.new_id(),
        timestamp=context.now,
        route=query.route,
        status=200 if error is None else STATUS.get(error, 500),
        latency_ms=latency_ms,
        start_time=window.start if window else None,
        end_time=window.end if window else None,
        min_magnitude=query.min_magnitude,
        page_size=query.page_size,
        result_count=len(page.items) if page else None,
        has_next_token=page.has_next if page else None,
        buckets_scanned=page.partitions if page else None,
        error=error,
    )


def logs_scanned_for_one(arguments: Arguments) -> float:
    """Return the number of logs that are read for each log of a page, for unchecked arguments."""
    return LOGS_PER_INGEST if arguments.get("type") == LogType.INGEST.value else 1.0


@paged_in(SortOrder.DESCENDING, consistent=True)
async def request_logs(
    info: Info, day: Day = None, type: Type = None, **paging: Unpack[Paging]
) -> Connection[RequestLog]:
    context = info.context
    connection = connection_of(info, keys.LOGS_OF_DAY, RequestLog.decoder, {"day": day, "type": type})
    span = connection.span(**paging)
    bucket = f"{day or context.now:%Y%m%d}"
    if day is None and span.start is not None:
        # A caller that pages through today's logs at midnight continues in the day of the first page.
        bucket = split(span.start["pk"])[1]
    page = await context.earthquakes.logs_of(bucket, span, type)
    return connection.of(page)
