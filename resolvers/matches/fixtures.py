"""Matches, FIX-1 … FIX-6, and their related objects."""

from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import Annotated, Any, Unpack

import strawberry

from datastore.errors import BadUserInput
from datastore.keyspace.matches import fixtures as keys
from datastore.matches.cricket import FixtureField, LineupPlayer, Match, Scorecard, Venue, phase_of
from datastore.matches.fixture_items import decoder_for, summary_from
from datastore.matches.fixtures import existing
from datastore.matches.leagues import League
from datastore.matches.operator_fields import field_names
from datastore.model.access_patterns import consistently
from datastore.model.timestamps import iso
from datastore.session.pagination import Page, SortOrder
from resolvers.matches import ids, parts
from resolvers.matches.ids import match_ids
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, Consistent, MatchId, argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection, Paging, connection_of, paged_in
from resolvers.shared.selected_fields import selected_fields

LONGEST_WINDOW = timedelta(days=3660)
DEFAULT_PAST, DEFAULT_FUTURE = timedelta(days=7), timedelta(days=30)


MatchIds = Annotated[list[strawberry.ID], argument("The `matchId` or `id` of each match, at most 100.")]
LeagueCode = Annotated[str, argument("The league's `code`.")]
From = Annotated[
    datetime | None,
    strawberry.argument(
        name="from",
        description="The earliest start time, inclusive; by default 7 days before the present time, or before `to` if "
        "that is earlier.",
    ),
]
To = Annotated[
    datetime | None,
    strawberry.argument(
        name="to",
        description="The latest start time, inclusive, at most 3,660 days after `from`; by default 30 days after the "
        "present time, or after `from` if that is later.",
    ),
]


strawberry.enum(
    FixtureField,
    description="A field of a fixture that an operator may set, which is a caller of `updateFixture`. The status also "
    "sets the phase.",
)


@strawberry.input(description="The place where a match is played.")
class VenueInput:
    name: str = required("The name of the ground, 1 to 200 characters.")
    venue_id: strawberry.ID | None = optional(
        "The venue's id at the source, 1 to 100 characters; null if it is unknown."
    )
    city: str | None = optional("The city, 1 to 200 characters; null if it is unknown.")
    country: str | None = optional("The country, 1 to 200 characters; null if it is unknown.")


@strawberry.input(description="A fixture as the source describes it.")
class FixtureInput:
    match_id: strawberry.ID = required(
        "The match's id at the source, 1 to 100 characters, or the `id` of a stored match."
    )
    league_id: strawberry.ID = required("The `leagueId` or `id` of the league, 1 to 100 characters.")
    league_code: str = required("The league's `code`, 1 to 20 characters.")
    home_team_id: strawberry.ID = required("The `teamId` or `id` of the home side, 1 to 100 characters.")
    away_team_id: strawberry.ID = required("The `teamId` or `id` of the other side, 1 to 100 characters.")
    start_time: datetime = required("The start time.")
    season_id: strawberry.ID | None = optional(
        "The `seasonId` or `id` of the season, 1 to 100 characters; null if it is unknown."
    )
    round: str | None = optional("The round, such as 3rd T20I or Final, 1 to 200 characters; null if it is unknown.")
    format: str | None = optional("The format, such as T20, ODI or Test, 1 to 100 characters; null if it is unknown.")
    status: str = strawberry.field(description="The status in the source's words, 1 to 100 characters.", default="NS")
    note: str | None = optional("A remark, such as the result in words, 1 to 1,000 characters; null without one.")
    venue: VenueInput | None = optional("The venue; null if it is unknown.")
    scheduled_overs: int | None = optional("The scheduled overs per innings, 1 to 100; null without a limit.")
    balls_per_over: int = strawberry.field(description="The legal balls per over, 4 to 8.", default=6)


@strawberry.input(
    description="The fields of a fixture to change. Omitted fields keep their values. The source does not update "
    "a field that is set here, even to null, until `clear` lists it."
)
class UpdateFixtureInput:
    start_time: strawberry.Maybe[datetime | None] = optional("The start time.")
    status: strawberry.Maybe[str | None] = optional(
        "The status in the source's words, 1 to 100 characters. It also sets the phase."
    )
    round: strawberry.Maybe[str | None] = optional("The round, 1 to 200 characters. Null removes it.")
    format: strawberry.Maybe[str | None] = optional("The format, 1 to 100 characters. Null removes it.")
    note: strawberry.Maybe[str | None] = optional("A remark, 1 to 1,000 characters. Null removes it.")
    venue: strawberry.Maybe[VenueInput | None] = optional("The venue. Null removes it.")
    scheduled_overs: strawberry.Maybe[int | None] = optional(
        "The scheduled overs per innings, 1 to 100. Null removes it."
    )
    clear: list[FixtureField] | None = optional(
        "At most 100 fields that the source updates again, in no order; by default none. A request sets fields or "
        "clears some. If the gateway has the source's latest value of a field, the field takes it at once; otherwise "
        "with the source's next report."
    )
    expected_version: int | None = optional(
        EXPECTED_VERSION.replace("`version`", "match's `revision`").replace("another version", "another revision")
    )


Fixtures = Annotated[list[FixtureInput], argument("The fixtures, at most 100.")]
Changes = Annotated[UpdateFixtureInput, argument("The changes, at least one field.")]


def _venue(field: str, venue: VenueInput) -> Venue:
    return Venue(**validate.fields(venue, VENUE_CHECKS, f"{field}."))


VENUE_CHECKS: dict[str, validate.Check] = {
    "name": validate.name,
    "venue_id": validate.id,
    "city": validate.name,
    "country": validate.name,
}
OWN_CHECKS: dict[str, validate.Check] = {
    "venue": _venue,
    "match_id": ids.match_id,
    "league_id": ids.league_id,
    "season_id": ids.season_id,
    "home_team_id": ids.team_id,
    "away_team_id": ids.team_id,
}


async def match(info: Info, id: MatchId, consistent: Consistent = False) -> Match | None:
    pattern, decoder = consistently(keys.FIXTURE, consistent), decoder_for(selected_fields(info))
    return await info.context.fixtures.by_id(ids.match_id("id", id), pattern, decoder)


async def matches(info: Info, ids: MatchIds, consistent: Consistent = False) -> list[Match | Exception | None]:
    validate.list_size("ids", ids)
    # An error affects only the entry of that match.
    pattern, decoder = consistently(keys.MATCHES, consistent), decoder_for(selected_fields(info))
    return await info.context.fixtures.by_ids(match_ids("ids", ids), pattern, decoder)


@paged_in(SortOrder.ASCENDING)
async def matches_by_league(
    info: Info, league_code: LeagueCode, from_: From = None, to: To = None, **paging: Unpack[Paging]
) -> Connection[Match]:
    code = validate.code("leagueCode", league_code)
    connection, page = await _of_league(info, code, from_, to, paging)
    if not page.items:
        await info.context.leagues.check_code(code)
    return connection.of(page)


@paged_in(SortOrder.ASCENDING)
async def matches_of_league(
    parent: strawberry.Parent[League],
    info: Info,
    from_: From = None,
    to: To = None,
    **paging: Unpack[Paging],
) -> Connection[Match]:
    connection, page = await _of_league(info, parent.code, from_, to, paging)
    return connection.of(page)


async def _of_league(
    info: Info, code: str, from_: datetime | None, to: datetime | None, paging: Paging
) -> tuple[Connection[Match], Page]:
    from_ = validate.timestamp("from", from_) if from_ else None
    to = validate.timestamp("to", to) if to else None
    start, end = _window(info.context.now, from_, to)
    # The default window moves with the clock, so the cursors are bound to the arguments.
    given = {"from": iso(from_) if from_ else None, "to": iso(to) if to else None}
    connection = connection_of(info, keys.BY_LEAGUE, summary_from, {"leagueCode": code, **given})
    page = await info.context.fixtures.of_league(code, start, end, connection.span(**paging))
    return connection, page


def _window(now: datetime, start: datetime | None, end: datetime | None) -> tuple[datetime, datetime]:
    first = start if start is not None else min(now, end or now) - DEFAULT_PAST
    last = end if end is not None else max(now, first) + DEFAULT_FUTURE
    if last < first:
        raise BadUserInput("`to` must not be before `from`.", field="to")
    if last - first > LONGEST_WINDOW:
        raise BadUserInput("`from` and `to` may lie at most 3,660 days apart.", field="to")
    return first, last


# The index of a league's matches contains neither the revision nor the fields that an operator set.
def revision(parent: strawberry.Parent[Match], info: Info) -> int | Awaitable[int]:
    return parent.revision if parent.revision is not None else _stored_value(parent, info, "revision")


def operator_fields(
    parent: strawberry.Parent[Match], info: Info
) -> tuple[FixtureField, ...] | Awaitable[tuple[FixtureField, ...]]:
    known = parent.operator_fields
    return known if known is not None else _stored_value(parent, info, "operator_fields")


async def _stored_value(match: Match, info: Info, name: str) -> Any:
    """Return a value of the stored match, read in one batch for all matches of a list.

    Raises: `NotFound` if the match was deleted after the list was read.
    """
    return getattr(existing(await info.context.fixtures.by_id(match.match_id), match.match_id), name)


async def scorecards(parent: strawberry.Parent[Match], info: Info) -> list[Scorecard]:
    """Return the scorecards. Matches of a list lack them; they are read in one batch for the list."""
    cards = parent.scorecards
    if cards is None:
        whole = await info.context.fixtures.by_id(parent.match_id)
        cards = whole.scorecards if whole else None
    return parts.scorecard_parts(parent.match_id, cards)


async def lineups(parent: strawberry.Parent[Match], info: Info) -> list[LineupPlayer]:
    cached = await info.context.fixture_cache.get(parent.match_id)
    players = cached.snapshot.lineups if cached else ()
    return [parts.part(player, parent.match_id, player.player_id) for player in players]


async def sync_fixtures(info: Info, input: Fixtures) -> list[Match]:
    require(info.context.identity, keys.SYNC_FIXTURES)
    validate.list_size("input", input)
    matches = [_match(fixture, f"input[{index}].") for index, fixture in enumerate(input)]
    return await info.context.fixtures.sync(matches)


def _match(fixture: FixtureInput, prefix: str) -> Match:
    values = validate.fields(fixture, Match, prefix, own=OWN_CHECKS)
    if values["home_team_id"] == values["away_team_id"]:
        raise BadUserInput(f"`{prefix}awayTeamId` must differ from `homeTeamId`.", field=f"{prefix}awayTeamId")
    return Match(**values, phase=phase_of(fixture.status))


async def update_fixture(info: Info, id: MatchId, input: Changes) -> Match:
    require(info.context.identity, keys.UPDATE_FIXTURE)
    match_id, expected = ids.match_id("id", id), validate.version(input.expected_version)
    if input.clear:
        return await _clear(info, match_id, input, expected)
    changes = validate.changes(input, Match, own=OWN_CHECKS)
    fields = [FixtureField(name) for name in Match.attributes(changes)]
    if "status" in changes:
        changes["phase"] = phase_of(changes["status"])
    return await info.context.fixtures.update(match_id, Match.attributes(changes), expected, fields=fields)


async def _clear(info: Info, match_id: str, input: UpdateFixtureInput, expected: int | None) -> Match:
    """Let the source update the fields again, with the source's latest values if they are cached.

    Without cached values the fields keep their values until the next poll of the source.
    """
    cleared = list(dict.fromkeys(input.clear or ()))
    validate.list_size("clear", cleared)
    if any(getattr(input, name, None) is not None for name in field_names(FixtureField)):
        raise BadUserInput(
            "`clear` must not come with fields to set: clear them first, or set them alone.", field="clear"
        )
    stored = existing(await info.context.fixtures.latest(match_id), match_id)
    operator_fields = [field for field in cleared if field in (stored.operator_fields or ())]
    cached = await info.context.fixture_cache.get(match_id) if operator_fields else None
    attributes = cached.snapshot.match.attributes_of(field_names(operator_fields)) if cached else {}
    return await info.context.fixtures.update(match_id, attributes, expected, cleared=cleared)


async def archive_fixture(info: Info, id: MatchId) -> Match:
    require(info.context.identity, keys.ARCHIVE_FIXTURE)
    return await info.context.fixtures.archive(ids.match_id("id", id))
