"""The data of the four workloads, equal in every run. No background job changes them."""

import itertools
import random
from datetime import datetime, timedelta
from functools import partial

from benchmarks.data import NOON, SEED, open_store
from datastore.dynamodb.client import Client
from datastore.feeds.comments import Comments
from datastore.feeds.home_feeds import entry_item
from datastore.feeds.posts import Post, Posts
from datastore.feeds.users import Users
from datastore.feeds.visibility import Viewer, Visibility, VisibilityPolicy
from datastore.keyspace.feeds.table import FEED
from datastore.matches.cricket import Match, Venue
from datastore.matches.fixtures import Fixtures
from datastore.matches.teams import Team, Teams
from datastore.model.ids import uuid7
from datastore.model.timestamps import iso
from datastore.primitives.tasks import bounded_gather

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
LONG_AGO = NOON - timedelta(days=30)
CONCURRENT_WRITES = 16
WORDS = (
    "Number {}: the new roastery by the harbour has opened, and the queue goes round the corner. Worth every minute: "
    "ask for the washed one from Huila, and bring a book. "
)


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
    users = [partial(writer.user, user_id) for user_id in (VIEWER, PROLIFIC, *AUTHORS)]
    await bounded_gather(users, CONCURRENT_WRITES)
    moments = (NOON - at * BETWEEN_POSTS for at in itertools.count(1))
    prolific_posts = [(PROLIFIC, number, next(moments)) for number in range(POSTS_OF_PROLIFIC)]
    other_posts = [(author, number, next(moments)) for number in range(POSTS_OF_EACH) for author in AUTHORS]
    posts = [partial(writer.post, *post) for post in prolific_posts + other_posts]
    written = await bounded_gather(posts, CONCURRENT_WRITES)
    fanned_out = sorted((post for post in written if post.author_id != PROLIFIC), key=lambda post: post.created_at)
    entries = [entry_item(VIEWER, post.author_id, iso(post.created_at), post.post_id) for post in fanned_out]
    await open_store(client).write_all(FEED, puts=entries)
    comments = [
        partial(writer.comment, post, AUTHORS[(at + 7 * number) % len(AUTHORS)], timedelta(seconds=5 + number))
        for at, post in enumerate(fanned_out)
        for number in range(COMMENTS_ON_EACH)
    ]
    await bounded_gather(comments, CONCURRENT_WRITES)


class Writer:
    """Writes the actions of users at given times, by the gateway's repositories."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._rng = random.Random(SEED)
        self._written = itertools.count(1)

    async def user(self, user_id: str) -> None:
        bio = f"{user_id} roasts, pours and photographs coffee, and tells where to find a good one."
        avatar = f"https://images.example.org/avatars/{user_id}.jpg"
        users = Users(open_store(self._client), LONG_AGO)
        await users.create(user_id, name=user_id.title(), bio=bio, avatar_ref=avatar)

    async def post(self, author: str, number: int, moment: datetime) -> Post:
        store, id = open_store(self._client), post_id(author, number)
        posts = Posts(store, moment, VisibilityPolicy(store, Viewer(author)))
        media = f"https://images.example.org/posts/{id}.jpg"
        text = self._words() + " ".join(f"#{tag}" for tag in TAGS)
        return await posts.create(id, author_id=author, text=text, visibility=Visibility.PUBLIC, media_ref=media)

    async def comment(self, post: Post, user_id: str, after: timedelta) -> None:
        moment = post.created_at + after
        comment_id = uuid7(moment, str(self._rng.getrandbits(128)))
        await Comments(open_store(self._client), moment).add(post, comment_id, user_id, self._words(), ())

    def _words(self) -> str:
        """Return a text of about 200 characters."""
        return WORDS.format(next(self._written))


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
