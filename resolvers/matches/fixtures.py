"""Matches, FIX-1 … FIX-6, and their related objects."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import strawberry

from datastore.errors import BadUserInput
from datastore.keyspace.matches import fixtures as keys
from datastore.matches.cricket import LineupPlayer, Match, Scorecard, Venue, phase_of
from datastore.matches.fixture_items import decoder_for, summary_from
from datastore.matches.fixtures import no_match, source_values
from datastore.matches.json_records import to_json
from datastore.matches.leagues import League
from datastore.matches.operator_fields import FixtureField
from datastore.matches.team_seasons import Season
from datastore.matches.teams import Team
from datastore.model.timestamps import iso
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, After, Before, First, Last, MatchId
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection
from resolvers.shared.selected_fields import selected_fields

LONGEST_WINDOW = timedelta(days=3660)
DEFAULT_PAST, DEFAULT_FUTURE = timedelta(days=7), timedelta(days=30)


MatchIds = Annotated[list[strawberry.ID], strawberry.argument(description="The `matchId` of each match, at most 100.")]
LeagueCode = Annotated[str, strawberry.argument(description="The league's `code`.")]
From = Annotated[
    datetime | None,
    strawberry.argument(name="from", description="The earliest start time, inclusive; by default 7 days ago."),
]
To = Annotated[
    datetime | None,
    strawberry.argument(
        name="to",
        description="The latest start time, inclusive, at most 3,660 days after `from`; by default in 30 days.",
    ),
]


strawberry.enum(FixtureField, description="A field of a fixture that an operator can set with `updateFixture`.")


@strawberry.input(description="The place where a match is played.")
class VenueInput:
    name: str = strawberry.field(description="The name of the ground, 1 to 200 characters.")
    venue_id: strawberry.ID | None = strawberry.field(description="The venue's id at the source.", default=None)
    city: str | None = strawberry.field(description="The city, 1 to 200 characters.", default=None)
    country: str | None = strawberry.field(description="The country, 1 to 200 characters.", default=None)


@strawberry.input(description="A fixture as the source describes it.")
class FixtureInput:
    match_id: strawberry.ID = strawberry.field(description="The match's id at the source, 1 to 100 characters.")
    league_id: strawberry.ID = strawberry.field(description="The `leagueId` of the league.")
    league_code: str = strawberry.field(description="The league's `code`, 1 to 20 characters.")
    home_team_id: strawberry.ID = strawberry.field(description="The `teamId` of the home side.")
    away_team_id: strawberry.ID = strawberry.field(description="The `teamId` of the other side.")
    start_time: datetime = strawberry.field(description="The start time.")
    season_id: strawberry.ID | None = strawberry.field(description="The season's id at the source.", default=None)
    round: str | None = strawberry.field(
        description="The round, such as 3rd T20I or Final, 1 to 200 characters.", default=None
    )
    format: str | None = strawberry.field(
        description="The format, such as T20, ODI or Test, 1 to 100 characters.", default=None
    )
    status: str = strawberry.field(description="The status in the source's words, 1 to 100 characters.", default="NS")
    note: str | None = strawberry.field(
        description="A remark, such as the result in words, 1 to 1,000 characters.", default=None
    )
    venue: VenueInput | None = strawberry.field(description="The venue.", default=None)
    scheduled_overs: int | None = strawberry.field(
        description="The scheduled overs per innings, 1 to 100; null without a limit.", default=None
    )
    balls_per_over: int = strawberry.field(description="The legal balls per over, 4 to 8.", default=6)


@strawberry.input(
    description="The fields of a fixture to change. Omitted fields keep their values. The source does not update "
    "a field that is set here, even to null, until `clear` lists it."
)
class UpdateFixtureInput:
    start_time: strawberry.Maybe[datetime | None] = strawberry.field(description="The start time.", default=None)
    status: strawberry.Maybe[str | None] = strawberry.field(
        description="The status, 1 to 100 characters.", default=None
    )
    round: strawberry.Maybe[str | None] = strawberry.field(
        description="The round, 1 to 200 characters. Null removes it.", default=None
    )
    format: strawberry.Maybe[str | None] = strawberry.field(
        description="The format, 1 to 100 characters. Null removes it.", default=None
    )
    note: strawberry.Maybe[str | None] = strawberry.field(
        description="A remark, 1 to 1,000 characters. Null removes it.", default=None
    )
    venue: strawberry.Maybe[VenueInput | None] = strawberry.field(
        description="The venue. Null removes it.", default=None
    )
    scheduled_overs: strawberry.Maybe[int | None] = strawberry.field(
        description="The scheduled overs per innings, 1 to 100. Null removes it.", default=None
    )
    clear: list[FixtureField] | None = strawberry.field(
        description="Fields that the source updates again. If the gateway has the source's latest value of a "
        "field, the field takes it at once; otherwise with the source's next report.",
        default=None,
    )
    expected_version: int | None = strawberry.field(
        description=EXPECTED_VERSION.replace("`version`", "match's `revision`"), default=None
    )


Fixtures = Annotated[list[FixtureInput], strawberry.argument(description="The fixtures, at most 100.")]
Changes = Annotated[UpdateFixtureInput, strawberry.argument(description="The changes, at least one field.")]


def _venue(field: str, venue: VenueInput) -> Venue:
    return Venue(**validate.fields(venue, VENUE_CHECKS, f"{field}."))


def _overs(field: str, overs: int) -> int:
    return validate.number(field, overs, minimum=1, maximum=100)


def _balls(field: str, balls: int) -> int:
    return validate.number(field, balls, minimum=4, maximum=8)


VENUE_CHECKS: dict[str, validate.Check] = {
    "name": validate.name,
    "venue_id": validate.id,
    "city": validate.name,
    "country": validate.name,
}
CHECKS: dict[str, validate.Check] = {
    "start_time": validate.timestamp,
    "status": validate.id,
    "round": validate.name,
    "format": validate.id,
    "note": validate.note,
    "venue": _venue,
    "scheduled_overs": _overs,
}
FIXTURE_CHECKS: dict[str, validate.Check] = {
    **CHECKS,
    "match_id": validate.id,
    "league_id": validate.id,
    "league_code": validate.code,
    "home_team_id": validate.id,
    "away_team_id": validate.id,
    "season_id": validate.id,
    "balls_per_over": _balls,
}
REMOVABLE = ("round", "format", "note", "venue", "scheduled_overs")


async def match(info: Info, id: MatchId) -> Match | None:
    return await info.context.fixtures.by_id(validate.id("id", id), convert=decoder_for(selected_fields(info)))


async def matches(info: Info, ids: MatchIds) -> list[Match | Exception | None]:
    validate.list_size("ids", ids)
    # An error affects only the entry of that match.
    return await info.context.fixtures.by_ids(validate.ids("ids", ids), decoder_for(selected_fields(info)))


async def matches_by_league(
    info: Info,
    league_code: LeagueCode,
    from_: From = None,
    to: To = None,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[Match]:
    from_ = validate.timestamp("from", from_) if from_ else None
    to = validate.timestamp("to", to) if to else None
    start, end = _window(info.context.now, from_, to)
    # The default window moves with the clock, so the cursors are bound to the arguments.
    arguments = {
        "leagueCode": league_code,
        "from": iso(from_) if from_ else None,
        "to": iso(to) if to else None,
    }
    connection = Connection(
        info.context.services.cursors, keys.BY_LEAGUE, "Query.matchesByLeague", arguments, summary_from
    )
    span = connection.span(first, after, last, before)
    code = validate.code("leagueCode", league_code)
    page = await info.context.fixtures.of_league(code, start, end, span)
    if not page.items:
        await info.context.leagues.check_code(code)
    return connection.of(page)


def _window(now: datetime, start: datetime | None, end: datetime | None) -> tuple[datetime, datetime]:
    first = start if start is not None else min(now, end or now) - DEFAULT_PAST
    last = end if end is not None else max(now, first) + DEFAULT_FUTURE
    if last < first:
        raise BadUserInput("`to` must not be before `from`.", field="to")
    if last - first > LONGEST_WINDOW:
        raise BadUserInput("`from` and `to` may lie at most 3,660 days apart.", field="to")
    return first, last


async def home_team(parent: strawberry.Parent[Match], info: Info) -> Team | None:
    return await info.context.teams.by_id(parent.home_team_id)


async def away_team(parent: strawberry.Parent[Match], info: Info) -> Team | None:
    return await info.context.teams.by_id(parent.away_team_id)


async def league(parent: strawberry.Parent[Match], info: Info) -> League | None:
    return await info.context.leagues.by_id(parent.league_id)


def season(parent: strawberry.Parent[Match], info: Info) -> Season | None:
    return Season(parent.season_id) if parent.season_id else None


async def scorecards(parent: strawberry.Parent[Match], info: Info) -> list[Scorecard]:
    """Return the scorecards. Matches of a list lack them; they are read in one batch for the list."""
    cards = parent.scorecards
    if cards is None:
        whole = await info.context.fixtures.by_id(parent.match_id)
        cards = whole.scorecards if whole else None
    return list(cards or ())


async def lineups(parent: strawberry.Parent[Match], info: Info) -> list[LineupPlayer]:
    cached = await info.context.fixture_cache.get(parent.match_id)
    return list(cached.snapshot.lineups) if cached else []


async def sync_fixtures(info: Info, fixtures: Fixtures) -> list[Match]:
    require(info.context.identity, keys.SYNC_FIXTURES)
    validate.list_size("fixtures", fixtures)
    matches = [_match(fixture, f"fixtures[{index}].") for index, fixture in enumerate(fixtures)]
    return await info.context.fixtures.sync(matches)


def _match(fixture: FixtureInput, prefix: str) -> Match:
    values = validate.fields(fixture, FIXTURE_CHECKS, prefix)
    if values["home_team_id"] == values["away_team_id"]:
        raise BadUserInput(f"`{prefix}awayTeamId` must differ from `homeTeamId`.", field=f"{prefix}awayTeamId")
    return Match(**values, phase=phase_of(fixture.status))


async def update_fixture(info: Info, id: MatchId, input: Changes) -> Match:
    require(info.context.identity, keys.UPDATE_FIXTURE)
    match_id, expected = validate.id("id", id), validate.version(input.expected_version)
    if input.clear:
        return await _clear(info, match_id, input, expected)
    changes = validate.changes(input, CHECKS, REMOVABLE)
    attributes = {name: _stored(value) for name, value in validate.attributes(changes).items()}
    fields = [FixtureField(name) for name in attributes]
    if "status" in attributes:
        attributes["phase"] = phase_of(attributes["status"]).value
    return await info.context.fixtures.update(match_id, attributes, expected, fields=fields)


async def _clear(info: Info, match_id: str, input: UpdateFixtureInput, expected: int | None) -> Match:
    """Let the source update the fields again, with the source's latest values if they are cached.

    Without cached values the fields keep their values until the next poll of the source.
    """
    cleared = list(dict.fromkeys(input.clear or ()))
    validate.list_size("clear", cleared)
    if any(getattr(input, name) is not None for name in CHECKS):
        raise BadUserInput(
            "`clear` must not come with fields to set: clear them first, or set them alone.", field="clear"
        )
    stored = await info.context.fixtures.latest(match_id)
    if stored is None:
        raise no_match(match_id)
    operator_fields = [field for field in cleared if field in (stored.operator_fields or ())]
    cached = await info.context.fixture_cache.get(match_id) if operator_fields else None
    attributes = source_values(cached.snapshot.match, operator_fields) if cached is not None else {}
    return await info.context.fixtures.update(match_id, attributes, expected, cleared=cleared)


def _stored(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    return to_json(value) if isinstance(value, Venue) else value


async def archive_fixture(info: Info, id: MatchId) -> Match:
    require(info.context.identity, keys.ARCHIVE_FIXTURE)
    return await info.context.fixtures.archive(validate.id("id", id))
