"""Follows of matches through the API, on the real engine (FOL-1, FOL-3, FOL-4, FOL-5)."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from datastore.matches.cricket import Match
from datastore.matches.fixtures import Fixtures
from datastore.model.identity import Role
from tests.support.match_follows import REMOVE, match, put_follows, schedule, stored_follows
from tests.support.served import NOON, Answer, Served

__all__ = ["match"]

FOLLOW = 'mutation ($team: ID!) { followMatch(matchId: "m1", input: {teamId: $team}) { teamId createdAt expiresAt } }'

UNFOLLOW = 'mutation { unfollowMatch(matchId: "m1") { teamId } }'

UPDATE = 'mutation ($team: ID!) { updateMatchFollow(matchId: "m1", input: {teamId: $team}) { teamId createdAt } }'

FOLLOWED = '{ matchFollow(matchId: "m1") { id matchId userId teamId createdAt expiresAt } }'


async def follow_with_team(served: Served, user: str = "ada", team: str = "10") -> Answer:
    return await served.ask(FOLLOW, {"team": team}, user=user)


async def followed_match(served: Served, user: str = "ada") -> Any:
    answer = await served.ask(FOLLOWED, user=user)
    assert answer.errors is None
    return answer.data["matchFollow"]


# FOL-3: follow


@pytest.mark.usefixtures("match")
async def test_a_match_is_followed_until_48_hours_after_its_start(served: Served) -> None:
    answer = await follow_with_team(served)

    assert answer.errors is None
    assert answer.data["followMatch"] == {
        "teamId": "10",
        "createdAt": "2026-06-25T12:00:00.000Z",
        "expiresAt": "2026-06-27T14:00:00.000Z",
    }
    assert answer.made == ["GetItem cricket-fixtures", "UpdateItem cricket-match-follows"]


@pytest.mark.usefixtures("match")
async def test_following_again_changes_the_team_and_keeps_the_time(served: Served) -> None:
    await follow_with_team(served)
    served.clock.forward(hours=1)

    answer = await follow_with_team(served, team="20")

    assert answer.data["followMatch"]["teamId"] == "20"
    assert answer.data["followMatch"]["createdAt"] == "2026-06-25T12:00:00.000Z"
    assert (await followed_match(served))["teamId"] == "20"


async def test_an_unknown_match_cannot_be_followed(served: Served) -> None:
    answer = await follow_with_team(served)

    assert answer.codes == ["NOT_FOUND"]
    assert await followed_match(served) is None


@pytest.mark.usefixtures("match")
@pytest.mark.parametrize("team", ["30", ""])
async def test_only_a_playing_team_can_be_followed(served: Served, team: str) -> None:
    answer = await follow_with_team(served, team=team)

    assert answer.codes == ["BAD_USER_INPUT"]
    assert answer.errors is not None
    assert answer.errors[0]["extensions"]["field"] == "teamId"
    assert await followed_match(served) is None


async def test_an_old_match_cannot_be_followed(served: Served) -> None:
    await schedule(served, NOON - timedelta(hours=48))

    answer = await follow_with_team(served)

    assert answer.codes == ["BAD_USER_INPUT"]
    assert await stored_follows(served.store()) == []


@pytest.mark.usefixtures("match")
async def test_twenty_concurrent_follows_are_one(served: Served) -> None:
    answers = await asyncio.gather(
        *[follow_with_team(served, team="10" if number % 2 else "20") for number in range(20)]
    )

    assert [answer.errors for answer in answers] == [None] * 20
    (item,) = await stored_follows(served.store())
    assert item["createdAt"] == "2026-06-25T12:00:00.000Z"
    assert (await followed_match(served))["teamId"] == item["teamId"]


@pytest.mark.usefixtures("match")
async def test_concurrent_follows_and_unfollows_leave_a_complete_follow_or_none(served: Served) -> None:
    answers = await asyncio.gather(
        *[follow_with_team(served) if number % 2 else served.ask(UNFOLLOW, user="ada") for number in range(20)]
    )

    assert [answer.errors for answer in answers] == [None] * 20
    left = await stored_follows(served.store())
    # Each unfollow that returned a follow removed one that a follow had stored.
    taken = [answer for answer in answers if (answer.data or {}).get("unfollowMatch")]
    assert len(left) <= 1
    assert len(taken) + len(left) <= 10
    assert (await followed_match(served) is None) is (left == [])


# FOL-1: the follow of a user


@pytest.mark.usefixtures("match")
async def test_a_follow_is_visible_to_its_user_only(served: Served) -> None:
    await follow_with_team(served)

    own = await followed_match(served)
    assert own == {
        "id": own["id"],
        "matchId": "m1",
        "userId": "ada",
        "teamId": "10",
        "createdAt": "2026-06-25T12:00:00.000Z",
        "expiresAt": "2026-06-27T14:00:00.000Z",
    }
    assert await followed_match(served, "grace") is None
    by_id = f'{{ node(id: "{own["id"]}") {{ ... on MatchFollow {{ userId teamId }} }} }}'
    assert (await served.ask(by_id, user="ada")).data == {"node": {"userId": "ada", "teamId": "10"}}
    assert (await served.ask(by_id, user="grace")).codes == ["FORBIDDEN"]
    assert (await served.ask(by_id, user="poller", role=Role.SYSTEM)).data["node"]["userId"] == "ada"


async def test_follows_of_one_request_are_read_together(served: Served) -> None:
    many = " ".join(f'f{number}: matchFollow(matchId: "m{number}") {{ teamId }}' for number in range(30))

    answer = await served.ask(f"{{ {many} }}", user="ada")

    assert answer.made == ["BatchGetItem cricket-match-follows"]


@pytest.mark.usefixtures("match")
async def test_an_expired_follow_disappears_from_every_read_at_its_second(served: Served) -> None:
    await follow_with_team(served)
    own = await followed_match(served)
    by_id = f'{{ node(id: "{own["id"]}") {{ id }} }}'

    served.clock.now = NOON + timedelta(hours=50, milliseconds=-1)
    assert await followed_match(served) == own
    served.clock.now = NOON + timedelta(hours=50)
    assert await followed_match(served) is None
    assert (await served.ask(by_id, user="ada")).data == {"node": None}
    assert (await served.ask(UPDATE, {"team": "20"}, user="ada")).codes == ["NOT_FOUND"]
    assert (await served.ask(UNFOLLOW, user="ada")).data == {"unfollowMatch": None}


@pytest.mark.parametrize(
    ("query", "signed_in"),
    [
        (FOLLOWED, True),
        (FOLLOW.replace("($team: ID!)", "").replace("$team", '"10"'), True),
        (UNFOLLOW, True),
        (UPDATE.replace("($team: ID!)", "").replace("$team", '"10"'), True),
        (REMOVE, False),
    ],
)
async def test_follows_require_a_signed_in_user(served: Served, query: str, signed_in: bool) -> None:
    assert (await served.ask(query)).codes == ["UNAUTHENTICATED"]
    as_user = await served.ask(query, user="ada")
    assert ("FORBIDDEN" in as_user.codes) is not signed_in


@pytest.mark.usefixtures("match")
async def test_matches_show_whether_the_caller_follows_them(served: Served) -> None:
    others = [Match(f"m{number}", "L", "IPL", "10", "20", NOON) for number in range(2, 40)]
    await Fixtures(served.store(), NOON).sync(others)
    await follow_with_team(served)
    many = ", ".join(f'"m{number}"' for number in range(1, 40))
    query = f"{{ matches(ids: [{many}]) {{ matchId followedByViewer }} }}"

    answer = await served.ask(query, user="ada")
    signed_out = await served.ask(query)

    assert [match["matchId"] for match in answer.data["matches"] if match["followedByViewer"]] == ["m1"]
    assert len(answer.data["matches"]) == 39
    assert answer.made == ["BatchGetItem cricket-fixtures", "BatchGetItem cricket-match-follows"]
    # Anonymous callers see the matches nevertheless.
    assert signed_out.errors is None
    assert signed_out.made == ["BatchGetItem cricket-fixtures"]
    assert [match["followedByViewer"] for match in signed_out.data["matches"]] == [None] * 39


@pytest.mark.usefixtures("match")
async def test_a_follow_has_its_match(served: Served) -> None:
    await follow_with_team(served)

    answer = await served.ask('{ matchFollow(matchId: "m1") { match { matchId homeTeamId } } }', user="ada")
    gone = await served.ask('{ matchFollow(matchId: "m2") { match { matchId } } }', user="ada")

    assert answer.data["matchFollow"] == {"match": {"matchId": "m1", "homeTeamId": "10"}}
    assert answer.made == ["GetItem cricket-fixtures", "GetItem cricket-match-follows"]
    assert gone.data == {"matchFollow": None}


# FOL-4: unfollow


@pytest.mark.usefixtures("match")
async def test_unfollowing_returns_the_follow_and_then_null(served: Served) -> None:
    await follow_with_team(served)
    await follow_with_team(served, user="grace", team="20")

    first = await served.ask(UNFOLLOW, user="ada")
    second = await served.ask(UNFOLLOW, user="ada")

    assert (first.data, first.made) == ({"unfollowMatch": {"teamId": "10"}}, ["DeleteItem cricket-match-follows"])
    assert (second.data, second.errors) == ({"unfollowMatch": None}, None)
    assert (await followed_match(served, "grace"))["teamId"] == "20"


@pytest.mark.usefixtures("match")
async def test_one_of_twenty_concurrent_unfollows_returns_the_follow(served: Served) -> None:
    await follow_with_team(served)

    answers = await asyncio.gather(*[served.ask(UNFOLLOW, user="ada") for _ in range(20)])

    assert [answer.errors for answer in answers] == [None] * 20
    assert [answer.data["unfollowMatch"] for answer in answers].count({"teamId": "10"}) == 1
    assert await stored_follows(served.store()) == []


# FOL-5: change the team


@pytest.mark.usefixtures("match")
async def test_the_team_of_a_follow_is_changed_in_one_write(served: Served) -> None:
    await follow_with_team(served)
    served.clock.forward(minutes=5)

    answer = await served.ask(UPDATE, {"team": "20"}, user="ada")

    assert answer.data["updateMatchFollow"] == {"teamId": "20", "createdAt": "2026-06-25T12:00:00.000Z"}
    assert answer.made == ["UpdateItem cricket-match-follows"]
    assert (await followed_match(served))["teamId"] == "20"


@pytest.mark.usefixtures("match")
@pytest.mark.parametrize("bad", ["", " ", "x" * 101])
async def test_ids_have_between_1_and_100_characters(served: Served, bad: str) -> None:
    await follow_with_team(served)
    queries = {
        "query($id: ID!) { matchFollow(matchId: $id) { teamId } }": "matchId",
        'mutation($id: ID!) { followMatch(matchId: $id, input: {teamId: "20"}) { teamId } }': "matchId",
        'mutation($id: ID!) { followMatch(matchId: "m1", input: {teamId: $id}) { teamId } }': "teamId",
        "mutation($id: ID!) { unfollowMatch(matchId: $id) { teamId } }": "matchId",
        'mutation($id: ID!) { updateMatchFollow(matchId: $id, input: {teamId: "20"}) { teamId } }': "matchId",
        'mutation($id: ID!) { updateMatchFollow(matchId: "m1", input: {teamId: $id}) { teamId } }': "teamId",
        "mutation($id: ID!) { deleteMatchFollows(matchId: $id) }": "matchId",
    }
    for query, field in queries.items():
        answer = await served.ask(query, {"id": bad}, user="ada", role=Role.SYSTEM)

        (error,) = answer.errors or []
        assert error["extensions"] == {"code": "BAD_USER_INPUT", "field": field}
        assert error["message"] == f"`{field}` must have between 1 and 100 characters."
        assert answer.calls == []
    assert (await followed_match(served))["teamId"] == "10"


@pytest.mark.usefixtures("match")
async def test_the_team_of_a_missing_follow_cannot_be_changed(served: Served) -> None:
    answer = await served.ask(UPDATE, {"team": "20"}, user="ada")

    assert answer.codes == ["NOT_FOUND"]
    assert await stored_follows(served.store()) == []


@pytest.mark.usefixtures("match")
async def test_a_follow_cannot_change_to_a_team_that_does_not_play(served: Served) -> None:
    await follow_with_team(served)

    answer = await served.ask(UPDATE, {"team": "30"}, user="ada")

    assert answer.codes == ["BAD_USER_INPUT"]
    assert (await followed_match(served))["teamId"] == "10"


async def test_a_follow_without_known_teams_may_change_to_any(served: Served) -> None:
    await put_follows(served.store(), range(1))

    answer = await served.ask(UPDATE, {"team": "20"}, user="user-0000")

    assert answer.data["updateMatchFollow"]["teamId"] == "20"
