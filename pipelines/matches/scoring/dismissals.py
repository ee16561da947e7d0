"""The kinds of dismissal by their usual words, which ones count for what, and how scorecards print them."""

from datastore.matches.cricket import Wicket

# The dismissals that count for the bowler; kinds that are not known do not.
CREDITED_TO_BOWLER = frozenset({"bowled", "caught", "caught and bowled", "lbw", "stumped", "hit wicket"})
ABSENT = "absent hurt"


def dismissal_text(wicket: Wicket, bowler: str) -> str:
    """As scorecards print it: "c Smith b Jones", "run out (Smith/Jones)". Kinds without a form of their own stand."""
    fielders = "/".join(wicket.fielders)
    match wicket.kind:
        case "caught":
            return f"c {fielders} b {bowler}" if fielders else f"caught b {bowler}"
        case "caught and bowled":
            return f"c & b {bowler}"
        case "stumped":
            return f"st {fielders} b {bowler}" if fielders else f"stumped b {bowler}"
        case "bowled":
            return f"b {bowler}"
        case "lbw" | "hit wicket":
            return f"{wicket.kind} b {bowler}"
        case "run out":
            return f"run out ({fielders})" if fielders else "run out"
        case other:
            return other
