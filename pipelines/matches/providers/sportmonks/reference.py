"""Conversion of SportMonks leagues, teams and standings to records."""

from typing import Any

from datastore.matches.leagues import League
from datastore.matches.team_seasons import TeamSeason
from datastore.matches.teams import Team
from pipelines.matches.providers.sportmonks.values import (
    Row,
    convert_rows,
    count,
    decimal,
    flag,
    ident,
    moment,
    required_id,
    required_text,
    row,
    text,
    whole,
)


def leagues_of(data: Any) -> list[League]:
    return list({league.league_id: league for league in convert_rows("league", data, _league)}.values())


def teams_of(data: Any) -> list[Team]:
    return list({team.team_id: team for team in convert_rows("team", data, _team)}.values())


def league_code(league: Row) -> str | None:
    """Return a league's short name, or its full name when it has none."""
    return text(league.get("code")) or text(league.get("name"))


def _league(league: Row) -> League:
    name = required_text(league, "name")
    return League(
        league_id=required_id(league, "id"),
        name=name,
        code=text(league.get("code")) or name,
        current_season_id=ident(league.get("season_id")),
        image_url=text(league.get("image_path")),
        country_id=ident(league.get("country_id")),
        type=text(league.get("type")),
        updated_at=moment(league.get("updated_at")),
    )


def _team(team: Row) -> Team:
    name = required_text(team, "name")
    return Team(
        team_id=required_id(team, "id"),
        name=name,
        code=text(team.get("code")) or name,
        image_url=text(team.get("image_path")),
        country_id=ident(team.get("country_id")),
        national=flag(team.get("national_team")),
        updated_at=moment(team.get("updated_at")),
    )


def standings_of(data: Any, season_id: str) -> list[TeamSeason]:
    """Return a row for each team of the season. For a team that played several stages it is that of the last."""
    latest: dict[str, tuple[int, TeamSeason]] = {}

    def keep(entry: Row) -> None:
        team, stage = _team_season(entry, season_id), count(entry.get("stage_id"))
        if team.team_id not in latest or latest[team.team_id][0] <= stage:
            latest[team.team_id] = (stage, team)

    convert_rows("standing", data, keep)
    return [team for _, team in latest.values()]


def _team_season(entry: Row, season_id: str) -> TeamSeason:
    season = row(entry.get("season"))
    return TeamSeason(
        season_id=season_id,
        team_id=required_id(entry, "team_id"),
        league_id=ident(entry.get("league_id")),
        season_name=text(season.get("name")),
        position=whole(entry.get("position")),
        played=whole(entry.get("played")),
        won=whole(entry.get("won")),
        lost=whole(entry.get("lost")),
        drawn=whole(entry.get("draw")),
        no_result=whole(entry.get("noresult")),
        points=decimal(entry.get("points")),
        net_run_rate=decimal(entry.get("netto_run_rate")),
        updated_at=moment(entry.get("updated_at")),
    )


def season_teams_of(season: Any, season_id: str) -> list[TeamSeason]:
    """Return the teams of a season without standings, such as a tour of two sides."""
    fields = row(season)
    team_ids = dict.fromkeys(convert_rows("team", fields.get("teams"), lambda team: required_id(team, "id")))
    return [
        TeamSeason(
            season_id=season_id,
            team_id=team_id,
            league_id=ident(fields.get("league_id")),
            season_name=text(fields.get("name")),
        )
        for team_id in team_ids
    ]
