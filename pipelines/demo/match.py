"""A generator of plausible cricket matches, ball by ball. The teams, players and grounds are invented."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from hashlib import sha256
from itertools import combinations
from typing import Any

Json = dict[str, Any]

LEAGUE = "Lantern Bay League"
# Players in batting order. The index of a player determines the role (see `_eleven`).
TEAMS = {
    "Harbour Kites": (
        "A Tresco, J Pellowe, M Quillan, R Ansty, D Farrow, K Ludlow, S Marrack, T Obeng, V Rowse, C Dunmore, "
        "N Hexham, L Varley, P Isbell, B Stannard, G Okoro"
    ),
    "Granite Foxes": (
        "E Corrigan, W Tamsin, H Bellamy, O Nancarrow, F Desai, I Kestle, Y Penrose, A Mwangi, J Haldane, R Sorley, "
        "D Whitlow, M Achebe, K Trelawn, S Bracken, T Ivory"
    ),
    "Saltmarsh Herons": (
        "C Ravenel, L Osgood, P Thackray, B Menon, N Fairlie, G Draycott, V Lomax, E Jolliffe, W Adair, H Kimathi, "
        "O Sandry, F Greaves, I Polwhele, Y Barrow, A Norcott"
    ),
    "Lighthouse Rovers": (
        "M Hartigan, D Sefton, K Vellanoweth, R Amadi, S Colquhoun, T Birchall, J Wainfleet, L Pascoe, C Otieno, "
        "B Marwood, P Endean, N Shearing, G Lanyon, V Tolliver, E Rudd"
    ),
}
GROUNDS = (("Lantern Park", "Lantern Bay"), ("The Breakwater Ground", "Port Alder"), ("Kiln Meadow", "Saltmarsh"))

OVERS, BALLS, MAX_OVERS_OF_BOWLER = 20, 6, 4
# Outcomes per thousand balls, for a good batter in the middle of an innings.
WIDE, NO_BALL, LEG_BYE, BYE, WICKET = 32, 4, 12, 5, 47
RUNS = {0: 295, 1: 385, 2: 72, 3: 5, 4: 100, 6: 42}
POWERPLAY, DEATH = range(6), range(16, OVERS)
KINDS = {"caught": 60, "bowled": 17, "lbw": 9, "run out": 7, "stumped": 4, "caught and bowled": 3}


@dataclass(slots=True)
class _Side:
    """A team's eleven, in batting order."""

    name: str
    eleven: list[str]
    keeper: str
    bowlers: list[str]

    def skill(self, batter: str) -> float:
        """Return the batter's skill, from 1 for the first four in the order to 0 for the last."""
        return 1 - max(0, self.eleven.index(batter) - 3) / 7


def demo_match(rng: random.Random, number: int, day: date) -> Json:
    """Return match `number` of the league in Cricsheet's JSON format. Equal states of `rng` give equal matches."""
    pairs = list(combinations(TEAMS, 2))
    names = list(pairs[number % len(pairs)])
    rng.shuffle(names)
    first, second = (_eleven(rng, name) for name in names)
    one = _DemoInnings(rng, first, second).play()
    two = _DemoInnings(rng, second, first, target=one.runs + 1).play()
    return {
        "meta": {"data_version": "1.1.0", "created": day.isoformat(), "revision": 1},
        "info": _info(rng, number, day, one, two),
        "innings": [one.document(), two.document()],
    }


def _eleven(rng: random.Random, name: str) -> _Side:
    """Choose five of six batters, the keeper, two of three all-rounders and three of five bowlers.

    The last of the batters bowls, too.
    """
    players = TEAMS[name].split(", ")
    groups = ((players[:6], 5), (players[6:7], 1), (players[7:10], 2), (players[10:], 3))
    chosen = {player for group, count in groups for player in rng.sample(group, count)}
    eleven = [player for player in players if player in chosen]
    return _Side(name, eleven, keeper=eleven[5], bowlers=[eleven[4], *eleven[6:]])


@dataclass(slots=True)
class _DemoInnings:
    """An innings, played ball by ball."""

    rng: random.Random
    batting: _Side
    bowling: _Side
    target: int | None = None
    runs: int = 0
    wickets: int = 0
    overs: list[Json] = field(default_factory=list)
    striker: str = ""
    non_striker: str = ""
    credit: dict[str, float] = field(default_factory=dict)

    def play(self) -> "_DemoInnings":
        self.striker, self.non_striker = self.batting.eleven[:2]
        bowled = dict.fromkeys(self.bowling.bowlers, 0)
        last = ""
        for over in range(OVERS):
            if self._over_and_done():
                break
            last = self._bowler(bowled, last)
            bowled[last] += 1
            self.overs.append({"over": over, "deliveries": self._over(over, last)})
            self.striker, self.non_striker = self.non_striker, self.striker
        return self

    def document(self) -> Json:
        target = {} if self.target is None else {"target": {"overs": OVERS, "runs": self.target}}
        powerplay = {"from": 0.1, "to": 5.6, "type": "mandatory"}
        return {"team": self.batting.name, "overs": self.overs, "powerplays": [powerplay], **target}

    def _over_and_done(self) -> bool:
        return self.wickets == 10 or (self.target is not None and self.runs >= self.target)

    def _bowler(self, bowled: dict[str, int], last: str) -> str:
        """Choose a bowler, preferably one with few overs, and never the bowler of the last over."""
        able = [name for name, overs in bowled.items() if name != last and overs < MAX_OVERS_OF_BOWLER]
        return min(able, key=lambda name: bowled[name] + self.rng.random() * 1.5)

    def _over(self, over: int, bowler: str) -> list[Json]:
        deliveries: list[Json] = []
        legal = 0
        while legal < BALLS and not self._over_and_done():
            delivery = self._delivery(over, bowler)
            legal += not {"wides", "noballs"} & delivery.get("extras", {}).keys()
            deliveries.append(delivery)
        return deliveries

    def _delivery(self, over: int, bowler: str) -> Json:
        delivery = {"batter": self.striker, "bowler": bowler, "non_striker": self.non_striker}
        batter_runs, extras = self._outcome(over)
        run = batter_runs if batter_runs is not None and batter_runs < 4 else 0
        if extras:
            delivery["extras"] = extras  # type: ignore[assignment]
            run += sum(extras.values()) - ("wides" in extras) - ("noballs" in extras)
        if batter_runs is None:
            delivery |= self._wicket(bowler)
        runs, more = batter_runs or 0, sum(extras.values())
        self._credit(delivery["batter"], runs)
        self.runs += runs + more
        if run % 2:
            self.striker, self.non_striker = self.non_striker, self.striker
        return delivery | {"runs": {"batter": runs, "extras": more, "total": runs + more}}

    def _outcome(self, over: int) -> tuple[int | None, dict[str, int]]:
        """Return the batter's runs, None for a wicket, and the extras by kind."""
        skill = self.batting.skill(self.striker)
        extra = self.rng.random() * 1000
        for kind, share in (("wides", WIDE), ("noballs", NO_BALL), ("legbyes", LEG_BYE), ("byes", BYE)):
            if extra < share:
                return 0, {kind: 1}
            extra -= share
        late = 1.5 if over in DEATH else 1.0
        if self.rng.random() * 1000 < WICKET * late * (1.9 - 0.9 * skill):
            return None, {}
        bold = (1.35 if over in POWERPLAY else 1.0) * late * (0.4 + 0.6 * skill)
        weights = [share * (bold if runs >= 4 else 1) for runs, share in RUNS.items()]
        return self.rng.choices(list(RUNS), weights)[0], {}

    def _wicket(self, bowler: str) -> Json:
        kind = self.rng.choices(list(KINDS), list(KINDS.values()))[0]
        wicket: Json = {"player_out": self.striker, "kind": kind}
        others = [name for name in self.bowling.eleven if name != bowler]
        if kind in ("caught", "run out"):
            wicket["fielders"] = [{"name": self.rng.choice(others)}]
        if kind == "stumped":
            wicket["fielders"] = [{"name": self.bowling.keeper}]
        if kind != "run out":
            self._credit(bowler, 20)
        self.wickets += 1
        if self.wickets < 10:
            self.striker = self.batting.eleven[self.wickets + 1]
        return {"wickets": [wicket]}

    def _credit(self, player: str, points: float) -> None:
        self.credit[player] = self.credit.get(player, 0) + points


def _info(rng: random.Random, number: int, day: date, one: _DemoInnings, two: _DemoInnings) -> Json:
    venue, city = rng.choice(GROUNDS)
    sides = (one.batting, two.batting)
    bat_first = rng.random() < 0.4
    toss = {"winner": sides[0 if bat_first else 1].name, "decision": "bat" if bat_first else "field"}
    return {
        "balls_per_over": BALLS,
        "city": city,
        "dates": [day.isoformat()],
        "event": {"name": LEAGUE, "match_number": number},
        "gender": "male",
        "match_type": "T20",
        "outcome": _outcome(one, two),
        "overs": OVERS,
        "player_of_match": [_best(one, two)],
        "players": {side.name: side.eleven for side in sides},
        "registry": {"people": {name: person_id(name) for side in sides for name in side.eleven}},
        "season": str(day.year),
        "team_type": "club",
        "teams": [side.name for side in sides],
        "toss": toss,
        "venue": venue,
    }


def _outcome(one: _DemoInnings, two: _DemoInnings) -> Json:
    if two.runs > one.runs:
        return {"winner": two.batting.name, "by": {"wickets": 10 - two.wickets}}
    if two.runs == one.runs:
        return {"result": "tie"}
    return {"winner": one.batting.name, "by": {"runs": one.runs - two.runs}}


def _best(one: _DemoInnings, two: _DemoInnings) -> str:
    """Return the player of the winning team with the most credit for batting and bowling."""
    winners: Sequence[str] = (two if two.runs > one.runs else one).batting.eleven
    credit = {name: one.credit.get(name, 0) + two.credit.get(name, 0) for name in winners}
    return max(credit, key=lambda name: credit[name])


def person_id(name: str) -> str:
    """Return eight hexadecimal digits for a name, the format of Cricsheet's register."""
    return sha256(name.encode()).hexdigest()[:8]
