"""SportMonks leagues, teams and standings as records of ours."""

from typing import Any

from datastore.matches.leagues import League
from datastore.matches.team_seasons import TeamSeason
from datastore.matches.teams import Team
from pipelines.matches.providers.sportmonks.values import (
    Row,
    count,
    decimal,
    flag,
    ident,
    moment,
    needed_id,
    needed_text,
    readable,
    row,
    text,
    whole,
)


def leagues_of(data: Any) -> list[League]:
    return list({league.league_id: league for league in readable("league", data, _league)}.values())


def teams_of(data: Any) -> list[Team]:
    return list({team.team_id: team for team in readable("team", data, _team)}.values())


def league_code(league: Row) -> str | None:
    """Its short name; the whole one where it has none."""
    return text(league.get("code")) or text(league.get("name"))


def _league(league: Row) -> League:
    name = needed_text(league, "name")
    return League(
        league_id=needed_id(league, "id"),
        name=name,
        code=text(league.get("code")) or name,
        season_id=ident(league.get("season_id")),
        image_url=text(league.get("image_path")),
        country_id=ident(league.get("country_id")),
        type=text(league.get("type")),
        updated_at=moment(league.get("updated_at")),
    )


def _team(team: Row) -> Team:
    name = needed_text(team, "name")
    return Team(
        team_id=needed_id(team, "id"),
        name=name,
        code=text(team.get("code")) or name,
        image_url=text(team.get("image_path")),
        country_id=ident(team.get("country_id")),
        national=flag(team.get("national_team")),
        updated_at=moment(team.get("updated_at")),
    )


def standings_of(data: Any, season_id: str) -> list[TeamSeason]:
    """A row for each team of the season; of one that played several stages that of the last."""
    found: dict[str, tuple[int, TeamSeason]] = {}

    def keep(standing: Row) -> None:
        team, stage = _standing(standing, season_id), count(standing.get("stage_id"))
        if team.team_id not in found or found[team.team_id][0] <= stage:
            found[team.team_id] = (stage, team)

    readable("standing", data, keep)
    return [team for _, team in found.values()]


def _standing(standing: Row, season_id: str) -> TeamSeason:
    season = row(standing.get("season"))
    return TeamSeason(
        season_id=season_id,
        team_id=needed_id(standing, "team_id"),
        league_id=ident(standing.get("league_id")),
        season_name=text(season.get("name")),
        position=whole(standing.get("position")),
        played=whole(standing.get("played")),
        won=whole(standing.get("won")),
        lost=whole(standing.get("lost")),
        drawn=whole(standing.get("draw")),
        no_result=whole(standing.get("noresult")),
        points=decimal(standing.get("points")),
        net_run_rate=decimal(standing.get("netto_run_rate")),
        updated_at=moment(standing.get("updated_at")),
    )


def season_teams_of(season: Any, season_id: str) -> list[TeamSeason]:
    """The teams of a season without standings, such as a tour of two sides."""
    told = row(season)
    team_ids = dict.fromkeys(readable("team", told.get("teams"), lambda team: needed_id(team, "id")))
    return [
        TeamSeason(
            season_id=season_id,
            team_id=team_id,
            league_id=ident(told.get("league_id")),
            season_name=text(told.get("name")),
        )
        for team_id in team_ids
    ]
