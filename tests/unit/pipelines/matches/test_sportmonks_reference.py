"""The conversion of SportMonks leagues, teams and seasons."""

from pipelines.matches.providers.sportmonks.reference import leagues_of, season_teams_of, standings_of, teams_of


def test_leagues_and_teams() -> None:
    rows = [
        {"id": 3, "season_id": 70, "country_id": 9, "name": "Hill League", "code": "HL", "image_path": "https://i/3",
         "type": "league", "updated_at": "2026-01-13T15:11:06.000000Z"},
        {"id": "4", "name": "Dale Cup", "code": None, "updated_at": None},
        {"id": 5, "name": None}, {"id": None, "name": "Nobody"}, "league",
    ]  # fmt: skip
    first, second = leagues_of(rows)
    assert (first.league_id, first.current_season_id, first.code, first.active, first.type) == (
        "3",
        "70",
        "HL",
        True,
        "league",
    )
    assert (second.league_id, second.code, second.current_season_id, second.updated_at) == ("4", "Dale Cup", None, None)

    teams = teams_of([{"id": 1, "name": "Kites", "code": "KIT", "national_team": 1}, {"id": 2, "name": ""}])
    assert [(team.team_id, team.code, team.national) for team in teams] == [("1", "KIT", True)]


def test_standings() -> None:
    rows = [
        {"team_id": 11, "stage_id": 2, "league_id": 7, "position": "1", "points": "20", "played": 14, "won": 10,
         "lost": 3, "draw": 0, "noresult": 1, "netto_run_rate": 0.625, "season": {"name": "2026"}},
        {"team_id": 11, "stage_id": 1, "position": 4, "points": 2},
        {"team_id": 12, "stage_id": 1, "position": None, "points": None, "netto_run_rate": "-1.5"},
        {"team_id": None},
    ]  # fmt: skip
    first, second = standings_of(rows, "70")
    assert (first.season_id, first.team_id, first.position, first.points, first.played) == (
        "70",
        "11",
        1,
        20.0,
        14,
    )
    assert (first.won, first.lost, first.drawn, first.no_result, first.net_run_rate) == (10, 3, 0, 1, 0.625)
    assert (first.season_name, first.league_id) == ("2026", "7")
    assert (second.position, second.points, second.net_run_rate) == (None, None, -1.5)


def test_a_season_without_standings_has_teams() -> None:
    season = {"id": 70, "league_id": 7, "name": "2026", "teams": [{"id": 11}, {"id": 12}, {"id": 11}, {"id": None}]}
    found = season_teams_of(season, "70")
    assert [(row.team_id, row.league_id, row.season_name, row.played) for row in found] == [
        ("11", "7", "2026", None),
        ("12", "7", "2026", None),
    ]
    assert season_teams_of(None, "70") == []
