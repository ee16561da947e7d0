"""The people of the demo's feed and their posts, from `data/feed.json`. All of them are invented."""

from pathlib import Path

import msgspec

from datastore.feeds.visibility import Visibility

# The users of the demo's tokens. The demo does not post, comment or follow for them.
VISITOR, ADMIN = "demo", "admin"
# Is created last and has no posts: if this user exists, so does all other data.
NEWCOMER = "zoe"


class ScriptedPost(msgspec.Struct, frozen=True):
    """A post that the demo starts with."""

    author: str
    #: The age of the post at the start.
    hours: float
    text: str
    #: The most likes that it gets: only users who may see it like it.
    likes: int = 0
    #: Pairs of user and text.
    comments: tuple[tuple[str, str], ...] = ()
    visibility: Visibility = Visibility.PUBLIC


class _Feed(msgspec.Struct, frozen=True, rename="camel"):
    #: The name and the bio of each user.
    people: dict[str, tuple[str, str]]
    #: The users that each user follows, separated by spaces.
    follows: dict[str, str]
    #: Posts of one author are numbered from the newest: `mira-1`.
    posts: tuple[ScriptedPost, ...]
    live_posts: tuple[str, ...]
    live_comments: tuple[str, ...]


_FEED = msgspec.json.decode((Path(__file__).parent / "data" / "feed.json").read_bytes(), type=_Feed)
NAMES, FOLLOWS, SCRIPT = _FEED.people, _FEED.follows, _FEED.posts
CAST = tuple(name for name in NAMES if name not in (VISITOR, ADMIN, NEWCOMER))
# The texts of live posts and live comments.
POST_TEXTS, COMMENT_TEXTS = _FEED.live_posts, _FEED.live_comments
