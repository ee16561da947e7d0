"""The figures of a match, counted from its Cricsheet JSON independently of the product."""

from typing import Any

Json = dict[str, Any]

NO_WICKET = ("retired hurt", "retired not out")
BOWLERS = ("bowled", "caught", "caught and bowled", "lbw", "stumped", "hit wicket")


def count_match(document: Json) -> list[Json]:
    """Return an entry for each innings, super overs included."""
    per_over = document["info"].get("balls_per_over", 6)
    return [count_innings(innings, per_over) for innings in document.get("innings", [])]


def count_innings(innings: Json, per_over: int) -> Json:
    overs = innings.get("overs", [])
    balls = [ball for over in overs for ball in over["deliveries"]]
    extras = {
        kind: sum(ball.get("extras", {}).get(word, 0) for ball in balls)
        for kind, word in (("byes", "byes"), ("leg_byes", "legbyes"), ("wides", "wides"), ("no_balls", "noballs"))
    }
    penalties = innings.get("penalty_runs", {})
    awarded = penalties.get("pre", 0) + penalties.get("post", 0)
    extras["penalty"] = awarded + sum(ball.get("extras", {}).get("penalty", 0) for ball in balls)
    wickets = [wicket for ball in balls for wicket in ball.get("wickets", []) if wicket["kind"] not in NO_WICKET]
    return {
        "team": innings["team"],
        "super_over": innings.get("super_over", False),
        "declared": innings.get("declared", False),
        "forfeited": innings.get("forfeited", False),
        "runs": awarded + sum(ball["runs"]["total"] for ball in balls),
        "wickets": len(wickets),
        "overs": overs_text(innings, per_over),
        "legal_balls": sum(map(is_legal, balls)),
        "extras": extras,
        "batting": {name: count_batter(name, innings, balls) for name in batters(balls, innings)},
        "bowling": {
            name: count_bowler(name, innings, per_over) for name in dict.fromkeys(ball["bowler"] for ball in balls)
        },
        "falls": falls(innings),
        "fours": sum(is_hit(ball, 4) for ball in balls),
        "sixes": sum(is_hit(ball, 6) for ball in balls),
    }


def is_legal(ball: Json) -> bool:
    return "wides" not in ball.get("extras", {}) and "noballs" not in ball.get("extras", {})


def is_hit(ball: Json, runs: int) -> bool:
    return ball["runs"]["batter"] == runs and "non_boundary" not in ball["runs"]


def is_complete(over: Json, innings: Json, per_over: int) -> bool:
    if over is not innings["overs"][-1]:
        return True
    miscount = innings.get("miscounted_overs", {}).get(str(over["over"]))
    return sum(map(is_legal, over["deliveries"])) >= (int(miscount["balls"]) if miscount else per_over)


def overs_text(innings: Json, per_over: int) -> str:
    overs = innings.get("overs", [])
    if not overs:
        return "0"
    last = overs[-1]
    if is_complete(last, innings, per_over):
        return str(last["over"] + 1)
    legal = sum(map(is_legal, last["deliveries"]))
    return f"{last['over']}.{legal}" if legal else str(last["over"])


def batters(balls: list[Json], innings: Json) -> list[str]:
    """Return the batters in the order they came in, then the players who did not bat."""
    names: dict[str, None] = {}
    for ball in balls:
        names |= dict.fromkeys((ball["batter"], ball["non_striker"]))
        names |= dict.fromkeys(wicket["player_out"] for wicket in ball.get("wickets", []))
    return list(names | dict.fromkeys(innings.get("absent_hurt", [])))


def count_batter(name: str, innings: Json, balls: list[Json]) -> Json:
    faced = [ball for ball in balls if ball["batter"] == name]
    kinds = [wicket["kind"] for ball in balls for wicket in ball.get("wickets", []) if wicket["player_out"] == name]
    return {
        "runs": sum(ball["runs"]["batter"] for ball in faced),
        "balls": sum("wides" not in ball.get("extras", {}) for ball in faced),
        "fours": sum(is_hit(ball, 4) for ball in faced),
        "sixes": sum(is_hit(ball, 6) for ball in faced),
        "status": batter_status(name, innings, balls, kinds),
    }


def batter_status(name: str, innings: Json, balls: list[Json], kinds: list[str]) -> str:
    if name in innings.get("absent_hurt", []):
        return "absent"
    if any(kind not in NO_WICKET for kind in kinds):
        return "out"
    last = balls[-1]
    gone = any(wicket["player_out"] == name for wicket in last.get("wickets", []))
    return "not_out" if name in (last["batter"], last["non_striker"]) and not gone else "retired"


def count_bowler(name: str, innings: Json, per_over: int) -> Json:
    whole = loose = maidens = 0
    bowled = []
    for over in innings["overs"]:
        mine = [ball for ball in over["deliveries"] if ball["bowler"] == name]
        bowled += mine
        if len(mine) == len(over["deliveries"]) and is_complete(over, innings, per_over):
            whole += 1
            maidens += sum(map(against, mine)) == 0
        else:
            loose += sum(map(is_legal, mine))
    overs, rest = whole + loose // per_over, loose % per_over
    return {
        "overs": f"{overs}.{rest}" if rest else str(overs),
        "maidens": maidens,
        "runs": sum(map(against, bowled)),
        "wickets": sum(wicket["kind"] in BOWLERS for ball in bowled for wicket in ball.get("wickets", [])),
        "wides": sum(ball.get("extras", {}).get("wides", 0) for ball in bowled),
        "no_balls": sum(ball.get("extras", {}).get("noballs", 0) for ball in bowled),
    }


def against(ball: Json) -> int:
    """Return the runs that count against the bowler."""
    extras = ball.get("extras", {})
    return int(ball["runs"]["batter"] + extras.get("wides", 0) + extras.get("noballs", 0))


def falls(innings: Json) -> list[tuple[str, int]]:
    """Return the dismissed batters with the score at the time."""
    score = innings.get("penalty_runs", {}).get("pre", 0)
    fallen = []
    for over in innings.get("overs", []):
        for ball in over["deliveries"]:
            score += ball["runs"]["total"]
            fallen += [
                (wicket["player_out"], score) for wicket in ball.get("wickets", []) if wicket["kind"] not in NO_WICKET
            ]
    return fallen


def milestones(document: Json, step: int = 50) -> list[tuple[int, str, int]]:
    """Return every fifty that a batter reached: the innings, the batter, and 50, 100, 150 …"""
    return [
        (number, name, value)
        for number, innings in enumerate(count_match(document), 1)
        for name, line in innings["batting"].items()
        for value in range(step, line["runs"] + 1, step)
    ]


def winner(document: Json) -> str | None:
    """Return the team that won the match, or a super over or bowl-out."""
    outcome = document["info"]["outcome"]
    return next((str(outcome[word]) for word in ("winner", "eliminator", "bowl_out") if word in outcome), None)
