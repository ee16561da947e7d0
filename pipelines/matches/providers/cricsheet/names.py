"""Ids and codes of teams and leagues, for which Cricsheet has only names. The same name always has the same id."""

import re
import unicodedata

from datastore.matches.leagues import League
from datastore.matches.teams import Team
from pipelines.matches.providers.cricsheet.format import Info

INTERNATIONAL = "international"
TOUR = re.compile(r"(.+?) tour of (.+)", re.IGNORECASE)
SMALL_WORDS = frozenset({"a", "an", "and", "at", "in", "of", "the", "to", "for", "v"})
WOMEN = re.compile(r"\bwomen(['’]s)?\b", re.IGNORECASE)


def slug(text: str) -> str:
    """Return a text in lower-case letters, digits and hyphens. Names in other scripts keep their letters."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return re.sub(r"[\W_]+", "-", plain.lower().replace("'", "").replace("’", "")).strip("-") or "unnamed"


def team_of(name: str, info: Info) -> Team:
    """Return the team with a name. The women's and the men's side of a name are different teams."""
    women = info.gender == "female" and not WOMEN.search(name)
    full_name = f"{name} Women" if women else name
    return Team(
        team_id=slug(full_name),
        name=full_name,
        code=initials(name) + ("W" if women else ""),
        national=info.team_type == INTERNATIONAL,
    )


def league_of(info: Info) -> League:
    """Return the league: an event in one format, or all matches of a format that belong to no event."""
    women = info.gender == "female"
    name = info.event.name if info.event else f"{info.match_type} matches"
    parts = [name, info.match_type, "women" if women and not WOMEN.search(name) else ""]
    return League(league_id=slug(" ".join(parts)), name=name, code=_league_code(name, info, women), type="league")


def _league_code(name: str, info: Info, women: bool) -> str:
    """Return a code such as IPL for a league of clubs, or AUSBANT20 for a tour."""
    tour = TOUR.fullmatch(WOMEN.sub(" ", name).strip())
    code = initials(tour[1]) + initials(tour[2]) if tour else initials(name, longest=6)
    kind = re.sub(r"\W", "", info.match_type).upper()
    if kind not in code and info.team_type == INTERNATIONAL:
        code += kind
    if women and (tour or not WOMEN.search(name)):
        code += "W"
    return code


def initials(name: str, longest: int = 3) -> str:
    """Return IND for India and SA for South Africa; numbers and abbreviations (T20, ICC) stay whole.

    A single word keeps `longest` letters.
    """
    words = [word for word in re.findall(r"\w+", re.sub(r"['’]s\b", "", name)) if word.lower() not in SMALL_WORDS]
    if len(words) == 1:
        return slug(words[0]).upper().replace("-", "")[:longest]
    return "".join(word if word.isupper() or word[0].isdigit() else word[0] for word in words).upper() or "X"
