"""The events of a match, derived from its Cricsheet JSON independently of the product.

An event is a tuple: its kind, its innings (None for an event of the match), and the values that identify it.
"""

from collections import Counter
from typing import Any

Json = dict[str, Any]
Found = Counter[tuple[Any, ...]]

STAYS = ("retired hurt", "retired not out", "retired ill")
FOR_THE_BOWLER = ("bowled", "caught", "caught and bowled", "lbw", "stumped", "hit wicket")


def match_events(document: Json) -> Found:
    """Return all events of a match with the number of their expected reports."""
    played = document.get("innings", [])
    found: Found = Counter()
    for number, innings in enumerate(played, 1):
        deliveries = list(_deliveries(innings))
        if deliveries:
            found[("INNINGS_START", number)] += 1
        if number < len(played):
            found[("INNINGS_BREAK", number)] += 1
        found.update(_boundaries(number, deliveries))
        found.update(_wickets(number, deliveries))
        found.update(_milestones(number, deliveries))
        found.update(_stands(number, deliveries))
        found.update(_maidens(number, innings, document["info"].get("balls_per_over", 6)))
    found.update(_hat_tricks(played))
    supers = [number for number, innings in enumerate(played, 1) if innings.get("super_over")]
    found.update(("SUPER_OVER", number) for number in supers[::2])
    found.update(("TARGET", None, runs) for runs in _targets(document, played))
    if document["info"]["outcome"]:
        found[("RESULT", None)] += 1
    if document["info"]["outcome"].get("result") == "no result" and played:
        found[("RAIN", None)] += 1
    return found


def _deliveries(innings: Json) -> list[tuple[str, Json]]:
    """Yield each delivery with its position as shown, and a unique position."""
    return [
        (f"{over['over']}/{place}", ball)
        for over in innings.get("overs", [])
        for place, ball in enumerate(over["deliveries"], 1)
    ]


def _boundaries(number: int, deliveries: list[tuple[str, Json]]) -> list[tuple[Any, ...]]:
    words = {4: "FOUR", 6: "SIX"}
    return [
        (words[ball["runs"]["batter"]], number, place)
        for place, ball in deliveries
        if ball["runs"]["batter"] in words and "non_boundary" not in ball["runs"]
    ]


def _wickets(number: int, deliveries: list[tuple[str, Json]]) -> list[tuple[Any, ...]]:
    return [
        ("WICKET", number, place, wicket["player_out"])
        for place, ball in deliveries
        for wicket in ball.get("wickets", [])
        if wicket["kind"] not in STAYS
    ]


def _milestones(number: int, deliveries: list[tuple[str, Json]]) -> list[tuple[Any, ...]]:
    names = {ball["batter"] for _, ball in deliveries}
    found: list[tuple[Any, ...]] = []
    for name in names:
        runs = 0
        for place, ball in deliveries:
            if ball["batter"] != name:
                continue
            before, runs = runs, runs + ball["runs"]["batter"]
            for value in range(50, runs + 1, 50):
                if before < value:
                    kind = "FIFTY" if value == 50 else "HUNDRED" if value == 100 else "MILESTONE"
                    found.append((kind, number, place, name, value))
    return found


def _stands(number: int, deliveries: list[tuple[str, Json]]) -> list[tuple[Any, ...]]:
    """Yield the partnerships. One ends when either batter leaves, with or without a recorded wicket."""
    found: list[tuple[Any, ...]] = []
    total, pair = 0, {""}
    for place, ball in deliveries:
        at_the_crease = {ball["batter"], ball["non_striker"]}
        if at_the_crease != pair:
            total, pair = 0, at_the_crease
        found += [
            ("PARTNERSHIP", number, place, value)
            for value in range(50, 1000, 50)
            if total < value <= total + ball["runs"]["total"]
        ]
        total += ball["runs"]["total"]
        if ball.get("wickets"):
            pair = {""}
    return found


def _maidens(number: int, innings: Json, per_over: int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for over in innings.get("overs", []):
        balls = over["deliveries"]
        bowlers = {ball["bowler"] for ball in balls}
        wrong = sum(1 for ball in balls if {"wides", "noballs"} & set(ball.get("extras", {})))
        off_the_bat = sum(ball["runs"]["batter"] for ball in balls)
        if len(balls) >= per_over and not wrong and not off_the_bat and len(bowlers) == 1:
            found.append(("MAIDEN", number, over["over"], bowlers.pop()))
    return found


def _hat_tricks(played: list[Json]) -> list[tuple[Any, ...]]:
    """Yield three wickets in three deliveries of a bowler, across overs and innings but not in super overs."""
    by_bowler: dict[str, list[tuple[int, str, bool]]] = {}
    for number, innings in enumerate(played, 1):
        if innings.get("super_over"):
            continue
        for place, ball in _deliveries(innings):
            took = any(wicket["kind"] in FOR_THE_BOWLER for wicket in ball.get("wickets", []))
            by_bowler.setdefault(ball["bowler"], []).append((number, place, took))
    found: list[tuple[Any, ...]] = []
    for bowler, bowled in by_bowler.items():
        run = 0
        for number, place, took in bowled:
            run = run + 1 if took else 0
            if run and run % 3 == 0:
                found.append(("HAT_TRICK", number, place, bowler))
    return found


def _targets(document: Json, played: list[Json]) -> list[int]:
    """Yield the targets of the match and of each super over, as stated in the file or computed."""
    targets = [
        innings["target"]["runs"]
        for innings in played
        if "runs" in innings.get("target", {}) and not innings.get("super_over")
    ]
    if document["info"].get("overs") is None and len(played) == 4 and not targets:
        sides: dict[str, int] = {}
        for innings in played[:3]:
            sides[innings["team"]] = sides.get(innings["team"], 0) + _runs(innings)
        chasing = played[3]["team"]
        targets.append(1 - sides.pop(chasing) + sum(sides.values()))
    supers = [innings for innings in played if innings.get("super_over")]
    for first, second in zip(supers[::2], supers[1::2], strict=False):
        targets.append(second.get("target", {}).get("runs", _runs(first) + 1))
    return targets


def _runs(innings: Json) -> int:
    awarded = sum(innings.get("penalty_runs", {}).values())
    return int(awarded + sum(ball["runs"]["total"] for _, ball in _deliveries(innings)))
