"""Arguments that name objects of cricket: local ids, or global ids of these types."""

from functools import partial

from resolvers.shared import validation as validate

# A match, its polled state and its entry in the list of live matches have the same key.
MATCHES = ("Match", "ActiveMatch", "LiveMatch")

match_id = partial(validate.id, of=MATCHES)
match_ids = partial(validate.ids, of=MATCHES)
team_id = partial(validate.id, of=("Team",))
league_id = partial(validate.id, of=("League",))
season_id = partial(validate.id, of=("Season",))
