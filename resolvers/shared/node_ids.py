"""Relay global ids, which consist of a type and the parts of its key, and the fields `node` and `nodes`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import orjson
import strawberry

from datastore.earthquakes.events import Earthquake
from datastore.errors import BadUserInput
from datastore.feeds.comments import Comment
from datastore.feeds.notifications import Notification
from datastore.feeds.posts import Post
from datastore.feeds.users import User
from datastore.keyspace import sightings as sighting_keys
from datastore.keyspace.feeds import comments as comment_keys
from datastore.keyspace.feeds import notifications as notification_keys
from datastore.keyspace.matches import active_matches as active_match_keys
from datastore.keyspace.matches import match_follows as match_follow_keys
from datastore.keyspace.photos import photos as library_keys
from datastore.matches.cricket import Match
from datastore.matches.display import DisplayState
from datastore.matches.leagues import League
from datastore.matches.live_state import ActiveMatch
from datastore.matches.match_follows import MatchFollow
from datastore.matches.teams import Team
from datastore.model import base64url
from datastore.model.access_patterns import LARGEST_PAGE
from datastore.photos.faces import Face
from datastore.photos.livestreams import Livestream
from datastore.photos.persons import Person
from datastore.photos.photos import Photo
from datastore.photos.users import PhotoUser
from datastore.sightings.reporters import UserProfile
from datastore.sightings.sightings import Sighting
from datastore.sightings.watches import Watch
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info

Record = Any
LONGEST_ID = 4096

NodeId = Annotated[strawberry.ID, strawberry.argument(description="The global `id` of an object.")]
NodeIds = Annotated[list[strawberry.ID], strawberry.argument(description="The global ids of at most 100 objects.")]


def earthquake_id(parent: strawberry.Parent[Earthquake]) -> strawberry.ID:
    return global_id("Earthquake", parent.event_id)


def sighting_id(parent: strawberry.Parent[Sighting]) -> strawberry.ID:
    return global_id("Sighting", *sighting_keys.sighting_parts(parent.key))


def user_profile_id(parent: strawberry.Parent[UserProfile]) -> strawberry.ID:
    return global_id("UserProfile", parent.user_id)


def watch_id(parent: strawberry.Parent[Watch]) -> strawberry.ID:
    return global_id("Watch", parent.user_id, parent.area, parent.category, parent.watch_id)


def user_id(parent: strawberry.Parent[User]) -> strawberry.ID:
    return global_id("User", parent.user_id)


def post_id(parent: strawberry.Parent[Post]) -> strawberry.ID:
    return global_id("Post", parent.post_id)


def match_id(parent: strawberry.Parent[Match]) -> strawberry.ID:
    return global_id("Match", parent.match_id)


def active_match_id(parent: strawberry.Parent[ActiveMatch]) -> strawberry.ID:
    return global_id("ActiveMatch", parent.match_id)


def display_state_id(parent: strawberry.Parent[DisplayState]) -> strawberry.ID:
    return global_id("DisplayState", parent.match_id, parent.team_id)


def team_id(parent: strawberry.Parent[Team]) -> strawberry.ID:
    return global_id("Team", parent.team_id)


def league_id(parent: strawberry.Parent[League]) -> strawberry.ID:
    return global_id("League", parent.league_id)


def match_follow_id(parent: strawberry.Parent[MatchFollow]) -> strawberry.ID:
    return global_id("MatchFollow", parent.match_id, parent.user_id)


def photo_user_id(parent: strawberry.Parent[PhotoUser], info: Info) -> strawberry.ID:
    return global_id("PhotoUser", info.context.services.user_ids.of(parent.email))


def photo_id(parent: strawberry.Parent[Photo]) -> strawberry.ID:
    # The time as the table contains it, so that the key is exact for photos of other programs too.
    return global_id("Photo", *library_keys.photo_parts(parent.key))


def person_id(parent: strawberry.Parent[Person]) -> strawberry.ID:
    return global_id("Person", parent.person_id)


def face_id(parent: strawberry.Parent[Face]) -> strawberry.ID:
    return global_id("Face", parent.face_id, parent.image_id)


def livestream_id(parent: strawberry.Parent[Livestream]) -> strawberry.ID:
    return global_id("Livestream", parent.livestream_id)


def comment_id(parent: strawberry.Parent[Comment]) -> strawberry.ID:
    return global_id("Comment", parent.post_id, parent.comment_id)


def notification_id(parent: strawberry.Parent[Notification]) -> strawberry.ID:
    return global_id("Notification", parent.user_id, parent.notification_id)


async def node(info: Info, id: NodeId) -> Record | None:
    return await _read(info.context, id, "id")


async def nodes(info: Info, ids: NodeIds) -> list[Record | None]:
    if len(ids) > LARGEST_PAGE:
        raise BadUserInput(f"`ids` may hold at most {LARGEST_PAGE} ids, not {len(ids)}.", field="ids")
    # An error affects only the entry of its own id.
    return await asyncio.gather(
        *[_read(info.context, id, f"ids[{index}]") for index, id in enumerate(ids)], return_exceptions=True
    )


def global_id(kind: str, *parts: str) -> strawberry.ID:
    return strawberry.ID(base64url.encode(orjson.dumps([kind, *parts])))


def _no_node(field: str) -> BadUserInput:
    return BadUserInput(f"`{field}` is not the global id of an object.", field=field)


async def _read(context: Context, id: str, field: str) -> Record | None:
    kind, parts = _parse(id, field)
    try:
        return await READERS[kind][1](context, *parts)
    except BadUserInput:  # a part that no key contains
        raise _no_node(field) from None


def _parse(id: str, field: str) -> tuple[str, list[str]]:
    error = _no_node(field)
    if len(id) > LONGEST_ID:
        raise error
    try:
        kind, *parts = orjson.loads(base64url.decode(id))
    except (ValueError, TypeError):
        raise error from None
    is_known = isinstance(kind, str) and kind in READERS
    if not is_known or len(parts) != READERS[kind][0] or not all(isinstance(part, str) for part in parts):
        raise error
    return kind, parts


async def _earthquake(context: Context, event_id: str) -> Earthquake | None:
    return await context.earthquakes.by_id(event_id)


async def _sighting(context: Context, area: str, moment: str, sighting_id: str) -> Sighting | None:
    return await context.sightings.by_key(sighting_keys.sighting(area, moment, sighting_id))


async def _user_profile(context: Context, user_id: str) -> UserProfile | None:
    return await context.reporters.by_id(user_id)


async def _watch(context: Context, user_id: str, area: str, category: str, watch_id: str) -> Watch | None:
    require(context.identity, sighting_keys.WATCH_NODE, owner=user_id)
    return await context.watches.by_key(sighting_keys.watch(user_id, area, category, watch_id))


async def _user(context: Context, user_id: str) -> User | None:
    return await context.users.by_id(user_id)


async def _post(context: Context, post_id: str) -> Post | None:
    return await context.posts.visible(post_id)


async def _match(context: Context, match_id: str) -> Match | None:
    return await context.fixtures.by_id(match_id)


async def _active_match(context: Context, match_id: str) -> ActiveMatch | None:
    require(context.identity, active_match_keys.STATE)
    return await context.active_matches.by_id(match_id)


async def _display_state(context: Context, match_id: str, team_id: str) -> DisplayState | None:
    return await context.display_states.by_id(match_id, team_id)


async def _team(context: Context, team_id: str) -> Team | None:
    return await context.teams.by_id(team_id)


async def _league(context: Context, league_id: str) -> League | None:
    return await context.leagues.by_id(league_id)


async def _match_follow(context: Context, match_id: str, user_id: str) -> MatchFollow | None:
    require(context.identity, match_follow_keys.FOLLOW_OF_USER, owner=user_id)
    return await context.match_follows.by_key(match_id, user_id)


async def _comment(context: Context, post_id: str, comment_id: str) -> Comment | None:
    post, comment = await asyncio.gather(
        context.posts.visible(post_id, comment_keys.COMMENT), context.comments.by_key(post_id, comment_id)
    )
    return comment if post else None


async def _notification(context: Context, user_id: str, notification_id: str) -> Notification | None:
    require(context.identity, notification_keys.NOTIFICATION, owner=user_id)
    return await context.notifications.by_id(user_id, notification_id)


async def _photo_user(context: Context, user_id: str) -> PhotoUser | None:
    email = context.services.user_ids.email_of(user_id)
    return None if email is None else await context.photo_users.by_email(email)


async def _photo(context: Context, image_id: str, moment: str) -> Photo | None:
    return await context.photos.as_taken(image_id, moment)


async def _person(context: Context, person_id: str) -> Person | None:
    return await context.persons.by_id(person_id)


async def _face(context: Context, face_id: str, image_id: str) -> Face | None:
    return await context.faces.by_key(face_id, image_id)


async def _livestream(context: Context, livestream_id: str) -> Livestream | None:
    return await context.livestreams.by_id(livestream_id)


# By type: the number of parts of its id, and the function that reads an object by them.
READERS: dict[str, tuple[int, Callable[..., Awaitable[Record | None]]]] = {
    "ActiveMatch": (1, _active_match),
    "Match": (1, _match),
    "Comment": (2, _comment),
    "DisplayState": (2, _display_state),
    "Earthquake": (1, _earthquake),
    "Face": (2, _face),
    "League": (1, _league),
    "Livestream": (1, _livestream),
    "MatchFollow": (2, _match_follow),
    "Notification": (2, _notification),
    "Person": (1, _person),
    "Photo": (2, _photo),
    "PhotoUser": (1, _photo_user),
    "Post": (1, _post),
    "Sighting": (3, _sighting),
    "Team": (1, _team),
    "User": (1, _user),
    "UserProfile": (1, _user_profile),
    "Watch": (4, _watch),
}
