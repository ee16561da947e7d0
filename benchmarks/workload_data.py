"""The data of the four workloads, equal in every run. No background job changes them."""

import itertools
from datetime import datetime, timedelta

from benchmarks.data import NOON, open_store
from benchmarks.feed_data import Writer, gather_writes
from datastore.dynamodb.client import Client
from datastore.feeds.home_feeds import entry_item
from datastore.feeds.posts import Post
from datastore.keyspace.feeds.table import FEED
from datastore.matches.cricket import Match, Venue
from datastore.matches.fixtures import Fixtures
from datastore.matches.teams import Team, Teams
from datastore.model.timestamps import iso

VIEWER = "viewer-00"
AUTHORS = [f"writer-{number:02}" for number in range(25)]
PROLIFIC = "prolific-00"
POSTS_OF_PROLIFIC = 120
POSTS_OF_EACH = 3
COMMENTS_ON_EACH = 4
BETWEEN_POSTS = timedelta(seconds=10)
TAGS = ("coffee", "harbour")
TEAMS = 40
MATCHES = 100
LEAGUE = "league-1"
UNTIL_MATCHES = timedelta(days=3)


def post_id(author: str, number: int) -> str:
    return f"post-{author}-{number:03}"


def match_id(number: int) -> str:
    return f"fixture-{number:03}"


async def fill(client: Client) -> None:
    """Write all data to empty tables."""
    await _fill_feed(client)
    await _fill_matches(client)


async def _fill_feed(client: Client) -> None:
    """Write one author with many posts, and a viewer whose feed has the posts of all other authors, with comments."""
    writer = Writer(client)
    await gather_writes(map(writer.user, [VIEWER, PROLIFIC, *AUTHORS]))
    written: list[Post] = []

    async def write(author: str, number: int, moment: datetime) -> None:
        written.append(await writer.post(post_id(author, number), author, moment, TAGS))

    moments = (NOON - at * BETWEEN_POSTS for at in itertools.count(1))
    prolific_posts = [(PROLIFIC, number, next(moments)) for number in range(POSTS_OF_PROLIFIC)]
    other_posts = [(author, number, next(moments)) for number in range(POSTS_OF_EACH) for author in AUTHORS]
    await gather_writes(itertools.starmap(write, prolific_posts + other_posts))
    fanned_out = sorted((post for post in written if post.author_id != PROLIFIC), key=lambda post: post.created_at)
    entries = [entry_item(VIEWER, post.author_id, iso(post.created_at), post.post_id) for post in fanned_out]
    await open_store(client).write_all(FEED, puts=entries)
    comments = [
        (post, AUTHORS[(at + 7 * number) % len(AUTHORS)], number)
        for at, post in enumerate(fanned_out)
        for number in range(COMMENTS_ON_EACH)
    ]
    await gather_writes(
        writer.comment(post, user, post.created_at + timedelta(seconds=5 + number)) for post, user, number in comments
    )


async def _fill_matches(client: Client) -> None:
    """Write matches that start in some days, so that no pipeline plays them."""
    teams = [
        Team(
            f"team-{number:02}",
            name=f"Harbour City {number:02}",
            code=f"H{number:02}",
            image_url=f"https://images.example.org/teams/{number:02}.png",
            country_id="153732",
        )
        for number in range(TEAMS)
    ]
    await Teams(open_store(client), NOON).put_all(teams)
    await Fixtures(open_store(client), NOON).sync([_match(number) for number in range(MATCHES)])


def _match(number: int) -> Match:
    """Return match `number`. The pairs of teams vary."""
    return Match(
        match_id=match_id(number),
        league_id="1",
        league_code=LEAGUE,
        home_team_id=f"team-{number % TEAMS:02}",
        away_team_id=f"team-{(number + 1 + number // TEAMS) % TEAMS:02}",
        start_time=NOON + UNTIL_MATCHES + number * timedelta(hours=6),
        season_id="2026",
        round=f"Match {number + 1}",
        format="T20",
        venue=Venue(name="Harbour Ground", venue_id="77", city="Harbour City"),
        scheduled_overs=20,
    )
