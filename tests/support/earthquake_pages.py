"""Pages of earthquakes, requested and walked through the API."""

from dataclasses import dataclass
from typing import Any

from tests.support.served import Answer, Served

PAGE = """
query (
  $start: DateTime, $end: DateTime, $least: Float, $kind: SeismicEventKind! = ANY
  $first: Int, $after: String, $last: Int, $before: String
) {
  earthquakes(
    from: $start, to: $end, minMagnitude: $least, kind: $kind
    first: $first, after: $after, last: $last, before: $before
  ) {
    nodes { eventId occurredAt magnitude }
    pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
  }
}
"""


@dataclass(frozen=True)
class EarthquakePage:
    """A page as a client received it, and its DynamoDB calls."""

    events: list[str]
    more: bool
    cursor: str | None
    calls: int
    days: int
    units: float


async def earthquake_page(served: Served, *, backward: bool = False, **variables: Any) -> EarthquakePage:
    answer = await served.ask(PAGE, variables)
    assert answer.errors is None, answer.errors
    found = answer.data["earthquakes"]
    info = found["pageInfo"]
    return EarthquakePage(
        [node["eventId"] for node in found["nodes"]],
        info["hasPreviousPage" if backward else "hasNextPage"],
        info["startCursor" if backward else "endCursor"],
        len(answer.calls),
        len(days_read(answer)),
        sum(call.units for call in answer.calls),
    )


def days_read(answer: Answer) -> set[str]:
    """Return the days that the query read, besides their statistics."""
    read = [call for call in answer.calls if call.index]
    return {call.request["ExpressionAttributeValues"][":partition"]["S"] for call in read}


async def walk_earthquakes(
    served: Served, size: int, *, backward: bool = False, **arguments: Any
) -> list[EarthquakePage]:
    """Return all pages of a list in the order in which they were read."""
    count, position = ("last", "before") if backward else ("first", "after")
    pages: list[EarthquakePage] = []
    while not pages or pages[-1].more:
        place = {position: pages[-1].cursor} if pages else {}
        pages.append(await earthquake_page(served, backward=backward, **{count: size}, **place, **arguments))
    return pages


def events_of_pages(pages: list[EarthquakePage], *, backward: bool = False) -> list[str]:
    """Return the ids of all pages, newest first."""
    return [event for page in (reversed(pages) if backward else pages) for event in page.events]
