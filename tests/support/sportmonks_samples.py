"""SportMonks payloads for tests: invented players and matches in its format, and a server that returns them."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from tests.support.served import REAL_DATA
from tests.support.time_jumps import jump

Json = Any
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

REAL = REAL_DATA / "sportmonks"
TOKEN = "s3cr3t/t0ken+of=tests"
PATIENCE = 10.0  # the time limit of a test's provider for a response, in seconds
KITES, OWLS = 11, 12
NAMES = ("Adams", "Baker", "Clark", "Dixon", "Evans", "Frost", "Grant", "Hayes", "Irwin", "Jones", "Kelly")
START = datetime(2026, 6, 25, 12, 0, tzinfo=UTC)

# name: runs, bye, leg_bye, noball_runs, legal, out
_SCORES: dict[str, tuple[int, int, int, int, bool, bool]] = {
    "No Run": (0, 0, 0, 0, True, False),
    "1 Run": (1, 0, 0, 0, True, False),
    "2 Runs": (2, 0, 0, 0, True, False),
    "FOUR": (4, 0, 0, 0, True, False),
    "SIX": (6, 0, 0, 0, True, False),
    "1 Wide": (1, 0, 0, 0, False, False),
    "5 Wides": (5, 0, 0, 0, False, False),
    "1 No Ball": (1, 0, 0, 1, False, False),
    "1 No Ball + 1 Run": (2, 0, 0, 1, False, False),
    "1 No Ball + 4 Runs": (5, 0, 0, 1, False, False),
    "1 No Ball + 1 Bye": (1, 1, 0, 1, False, False),
    "1 Bye": (0, 1, 0, 0, True, False),
    "4 Byes": (0, 4, 0, 0, True, False),
    "2 Leg Byes": (0, 0, 2, 0, True, False),
    "1 Leg Bye + 4 Runs": (4, 0, 5, 0, True, False),
    "5 Penalty Runs": (5, 0, 0, 0, True, False),
    "Catch Out": (0, 0, 0, 0, True, True),
    "Catch Out (Sub)": (0, 0, 0, 0, True, True),
    "Clean Bowled": (0, 0, 0, 0, True, True),
    "LBW OUT": (0, 0, 0, 0, True, True),
    "Stump Out": (0, 0, 0, 0, True, True),
    "Run Out": (0, 0, 0, 0, True, True),
    "Run Out + 1": (1, 0, 0, 0, True, True),
    "1 Wide + Stump Out": (1, 0, 0, 0, False, True),
    "Hit Wicket": (0, 0, 0, 0, True, True),
    "Obstructing the field Out": (0, 0, 0, 0, True, True),
    "Retired Hurt": (0, 0, 0, 0, True, False),
    "Absent Hurt": (0, 0, 0, 0, True, False),
    "Not Out": (0, 0, 0, 0, True, False),
    "Leg Before the Moon": (0, 0, 0, 0, True, True),
}
SCORE_IDS = {name: number for number, name in enumerate(_SCORES, start=1)}


def score(name: str) -> Json:
    runs, bye, leg_bye, noball_runs, legal, out = _SCORES[name]
    flags = {"four": name == "FOUR" or "+ 4 Runs" in name, "six": name == "SIX", "is_wicket": out, "out": out}
    extras = {"bye": bye, "leg_bye": leg_bye, "noball": int(noball_runs > 0), "noball_runs": noball_runs}
    return {"resource": "scores", "id": SCORE_IDS[name], "name": name, "runs": runs, "ball": legal, **extras, **flags}


SCORES = [score(name) for name in _SCORES]


def player_id(team: int, number: int) -> int:
    """Return the id of a player: those of team 11 are 1101 to 1111."""
    return team * 100 + number


def player(team: int, number: int, **place: Json) -> Json:
    first = "Kit" if team == KITES else "Olly"
    last = NAMES[(number - 1) % len(NAMES)]
    return {
        "resource": "players",
        "id": player_id(team, number),
        "fullname": f"{first} {last}",
        "firstname": first,
        "lastname": last,
        "battingstyle": "left-hand-bat",
        "bowlingstyle": None,
        "position": {"resource": "positions", "id": 1, "name": "Batsman"},
        "lineup": {
            "team_id": team,
            "captain": number == 1,
            "wicketkeeper": number == 2,
            "substitution": False,
            **place,
        },
    }


def lineup() -> Json:
    return [player(team, number) for team in (KITES, OWLS) for number in range(1, 12)]


def fixture_row(number: Json = 501, **changes: Json) -> Json:
    """Return a fixture that has not begun, of league 7 and season 70."""
    return {
        "resource": "fixtures",
        "id": number,
        "league_id": 7,
        "season_id": 70,
        "stage_id": 700,
        "round": "1st Match",
        "localteam_id": KITES,
        "visitorteam_id": OWLS,
        "starting_at": "2026-06-25T12:00:00.000000Z",
        "type": "T20",
        "live": True,
        "status": "NS",
        "last_period": None,
        "note": "",
        "venue_id": 9,
        "toss_won_team_id": None,
        "winner_team_id": None,
        "draw_noresult": None,
        "man_of_match_id": None,
        "total_overs_played": 20,
        "elected": None,
        "super_over": False,
        "follow_on": False,
        "localteam_dl_data": {"score": None, "overs": None, "wickets_out": None},
        "visitorteam_dl_data": {"score": None, "overs": None, "wickets_out": None},
        "rpc_overs": None,
        "rpc_target": None,
        "weather_report": [],
        "league": {"resource": "leagues", "id": 7, "name": "Hill League", "code": "HL", "type": "league"},
        "venue": {"resource": "venues", "id": 9, "name": "Long Meadow", "city": "Hillford", "capacity": None},
    } | changes


def ball_row(number: int, place: Json, name: str = "No Run", **changes: Json) -> Json:
    """Return a ball of the Kites' innings: Kit Adams faces Olly Kelly, and Kit Baker is at the other end."""
    return {
        "resource": "balls",
        "id": number,
        "fixture_id": 501,
        "team_id": KITES,
        "ball": place,
        "scoreboard": "S1",
        "batsman_one_on_creeze_id": player_id(KITES, 1),
        "batsman_two_on_creeze_id": player_id(KITES, 2),
        "batsman_id": player_id(KITES, 1),
        "bowler_id": player_id(OWLS, 11),
        "batsmanout_id": None,
        "catchstump_id": None,
        "runout_by_id": None,
        "score_id": SCORE_IDS[name],
        "score": score(name),
        "updated_at": "2026-06-25T12:05:00.000000Z",
    } | changes


def batting_row(number: int, **changes: Json) -> Json:
    """Return a batting row of the Kites' first innings."""
    return {
        "resource": "battings",
        "id": 9000 + number,
        "sort": number,
        "fixture_id": 501,
        "team_id": KITES,
        "active": False,
        "scoreboard": "S1",
        "player_id": player_id(KITES, number),
        "ball": 0,
        "score_id": None,
        "score": 0,
        "four_x": 0,
        "six_x": 0,
        "catch_stump_player_id": None,
        "runout_by_id": None,
        "batsmanout_id": None,
        "bowling_player_id": None,
        "fow_score": 0,
        "fow_balls": 0,
        "rate": 0,
    } | changes


def bowling_row(number: int, **changes: Json) -> Json:
    return {
        "resource": "bowlings",
        "id": 8000 + number,
        "sort": number,
        "fixture_id": 501,
        "team_id": OWLS,
        "active": False,
        "scoreboard": "S1",
        "player_id": player_id(OWLS, number),
        "overs": 0,
        "medians": 0,
        "runs": 0,
        "wickets": 0,
        "wide": 0,
        "noball": 0,
        "rate": 0,
    } | changes


def runs_row(inning: Json, team: int, score: Json, wickets: Json, overs: Json) -> Json:
    return {"resource": "runs", "inning": inning, "team_id": team, "score": score, "wickets": wickets, "overs": overs}


def total(scoreboard: str, team: int, runs: int, wickets: int, overs: Json) -> Json:
    row = {"type": "total", "scoreboard": scoreboard, "team_id": team}
    return {"resource": "scoreboards", **row, "total": runs, "wickets": wickets, "overs": overs, "wide": 0}


def extra(scoreboard: str, team: int, **parts: int) -> Json:
    kinds = {"wide": 0, "noball_runs": 0, "noball_balls": 0, "bye": 0, "leg_bye": 0, "penalty": 0}
    row = {"type": "extra", "scoreboard": scoreboard, "team_id": team}
    return {"resource": "scoreboards", **row, **kinds, **parts, "total": 0, "overs": 0, "wickets": 0}


def page_body(data: list[Json], number: int = 1, last: int = 1) -> Json:
    """Return a page as the service sends it. The URLs of its links contain no token."""
    address = "https://cricket.sportmonks.com/api/v2.0/fixtures?page="
    return {
        "data": data,
        "links": {"first": address + "1", "last": f"{address}{last}", "prev": None, "next": f"{address}{number + 1}"},
        "meta": {
            "current_page": number,
            "last_page": last,
            "per_page": 100,
            "from": 1 if data else None,
            "to": len(data) or None,
        },
    }


@dataclass(repr=False)
class Service:
    """The responses of the server by path, and its requests. The `faults` apply to the next requests first."""

    url: str = ""
    responses: dict[str, Json] = field(default_factory=lambda: {"scores": SCORES, "livescores": []})
    faults: deque[Handler] = field(default_factory=deque)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    held: asyncio.Event | None = None
    busy: int = 0

    def paths(self, besides: str = "scores") -> list[str]:
        return [path for path, _ in self.requests if path != besides]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/api/v2.0/")
        self.requests.append((path, dict(request.query)))
        if self.faults and path != "scores":
            return await self.faults.popleft()(request)
        if self.held is not None and path != "scores":
            self.busy += 1
            await self.held.wait()
        response = self.responses.get(path)
        response = response(request) if callable(response) else response
        if response is None:
            return web.json_response({"message": "record not found"}, status=404)
        if isinstance(response, bytes):
            return web.Response(body=response, content_type="application/json")
        enveloped = response if isinstance(response, dict) and "data" in response else {"data": response}
        return web.json_response(enveloped, headers=self.headers)


@asynccontextmanager
async def serve_sportmonks(service: Service | None = None) -> AsyncIterator[Service]:
    service = service or Service()
    app = web.Application()
    app.router.add_get("/{path:.*}", service.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    service.url = "http://{}:{}/api/v2.0/".format(*runner.addresses[0][:2])
    try:
        yield service
    finally:
        if service.held is not None:
            service.held.set()
        await runner.cleanup()


def failing(status: int, body: str = "<html>Sorry</html>", **headers: str) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, text=body, headers=named, content_type="text/html")

    return handler


def echoing(status: int) -> Handler:
    """Return an error response that repeats the URL of the request, with the token."""

    async def handler(request: web.Request) -> web.StreamResponse:
        text = f"Bad request: {request.url} {request.query['api_token']} {request.query_string}"
        return web.json_response({"error": {"message": text}}, status=status)

    return handler


async def cut_connection(request: web.Request) -> web.StreamResponse:
    """Close the connection before a response."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cut_body_short(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"data": [')
    return await cut_connection(request)


async def hang_provider(_request: web.Request) -> web.StreamResponse:
    """Send no response. The clock advances beyond the provider's time limit (`PATIENCE`) at once."""
    jump(2 * PATIENCE)
    await asyncio.sleep(60 * PATIENCE)
    return web.Response()


def responding(body: bytes) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    return handler


async def endless(request: web.Request) -> web.StreamResponse:
    """Return a body of 40 MB without a stated length."""
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(40):
        await response.write(b" " * (1 << 20))
    return response


class ProviderTime:
    """The clock of a provider, which sleeping advances."""

    def __init__(self) -> None:
        self.now = START
        self.slept: list[float] = []

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.forward(seconds)
        await asyncio.sleep(0)


def body_of(data: Json) -> bytes:
    return json.dumps({"data": data}).encode()
