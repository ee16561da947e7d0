"""The kinds of dismissal, their effect on the figures, and their form on scorecards."""

from datastore.matches.cricket import Wicket

# The dismissals credited to the bowler. Unknown kinds are not.
CREDITED_TO_BOWLER = frozenset({"bowled", "caught", "caught and bowled", "lbw", "stumped", "hit wicket"})
ABSENT = "absent hurt"


def dismissal_text(wicket: Wicket, bowler: str) -> str:
    """Return the scorecard's form, such as "c Smith b Jones" or "run out (Smith/Jones)"; other kinds as they are."""
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
