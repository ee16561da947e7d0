"""Notifications of likes, comments, follows and mentions by other users; none of a user's own actions.

A notification is deduplicated by a mark that names its cause, not its stream record. A user who likes, unlikes and
likes again within a window counts as one liker, and a second follow on the same day causes no second notification.

The unread notifications of a deleted post or comment are deleted. Their keys follow from the item that was deleted;
those of likes that were taken back before are found among the author's. A record and the deletion of its item are
handled in their order; the mark of a notification is put with its deletion too, so that a record that is handled
late, as from a dead letter, creates it no more.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256

from datastore.change_streams import exactly_once as effects
from datastore.change_streams.exactly_once import Effect
from datastore.change_streams.shards.stream_reader import Change
from datastore.feeds.cascade_delete import PostRemains
from datastore.feeds.change_completion import completed
from datastore.feeds.comments import Comment, commented, uncommented
from datastore.feeds.follows import Follow, following_from, is_following
from datastore.feeds.likes import Like, is_like, like_from
from datastore.feeds.mention_recipients import Recipients
from datastore.feeds.notifications import (
    LIFETIME,
    LIKES_WINDOW,
    Notification,
    NotificationKind,
    retract,
    retract_of_post,
    told,
)
from datastore.feeds.posts import Post, deleted, written
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import notifications as keys
from datastore.model.timestamps import epoch_ms, from_epoch_ms, iso
from datastore.session.store import Store
from pipelines.feeds.bounded_gather import side_by_side


@dataclass(frozen=True, slots=True)
class News:
    """A notification to be, told once for its `mark`.

    `seen_by`, an author and a visibility, tells who may see the post it is about. It is None where that is no question:
    the recipient is the author, or there is no post.
    """

    mark: tuple[str, ...]
    notification: Notification
    seen_by: tuple[str, Visibility] | None = None


class NotificationHandler:
    """The handler that tells."""

    name = "notifications"

    def __init__(self, open_store: Callable[[], Store], now: Callable[[], datetime]) -> None:
        self._open_store = open_store
        self._now = now

    async def handle(self, changes: Sequence[Change]) -> None:
        now = self._now()
        changes = await completed(self._open_store, changes)
        news = [piece for change in changes for piece in news_of(change) if piece.notification.is_kept_at(now)]
        if news:
            await self._notify(self._open_store(), news, now)
        taken_back = [change for change in changes if _is_taken_back(change)]
        if taken_back:
            await self._retract(self._open_store(), taken_back, now)

    async def _notify(self, store: Store, news: Sequence[News], now: datetime) -> None:
        recipients = Recipients(store)
        wanted = await asyncio.gather(*[_is_wanted(recipients, piece) for piece in news])
        # What is not told is marked too: a record that comes again, after somebody joined, changes nothing.
        decided = [
            Effect(self._effect(piece), (told(piece.notification),) if is_wanted else ())
            for piece, is_wanted in zip(news, wanted, strict=True)
        ]
        await effects.apply(store, decided, now)

    async def _retract(self, store: Store, changes: Sequence[Change], now: datetime) -> None:
        """Delete the unread notifications of deleted items; those of a like only if its post is deleted.

        Whether the posts of likes are gone is read in one batch. A like that was taken back before its post was deleted
        does not give the key of its notification any more. The author's unread notifications are therefore read.
        """
        likes = [like_from(change.old) for change in changes if is_like(change.keys) and change.old is not None]
        gone = (await PostRemains(store).gone(like.post_id for like in likes)).all if likes else set[str]()
        news = [piece for like in likes if like.post_id in gone for piece in _of_like(like)]
        news += [piece for change in changes for piece in _news_deleted(change)]
        news = [piece for piece in news if piece.notification.is_kept_at(now)]
        await effects.apply(store, [Effect(self._effect(piece), ()) for piece in news], now)
        await retract(store, [piece.notification for piece in news])
        posts = [post for change in changes if (post := deleted(change)) is not None]
        # Only the author could like a private post or comment on it: there is nothing to delete.
        shown = [post for post in posts if post.visibility is not Visibility.PRIVATE]
        await side_by_side(
            [
                partial(retract_of_post, store, post.author_id, post.post_id, window_of(post.created_at))
                for post in shown
            ]
        )

    def _effect(self, piece: News) -> str:
        return f"{self.name}:{_digest(*piece.mark)}"


async def _is_wanted(recipients: Recipients, piece: News) -> bool:
    return piece.seen_by is None or await recipients.may_be_told(piece.notification.user_id, *piece.seen_by)


def _is_taken_back(change: Change) -> bool:
    """Whether the change deleted a like, comment or post."""
    is_unliked = change.kind == "REMOVE" and is_like(change.keys)
    return is_unliked or uncommented(change) is not None or deleted(change) is not None


def _news_deleted(change: Change) -> list[News]:
    """Return the notifications that a deleted comment or post had caused."""
    if (comment := uncommented(change)) is not None:
        return _of_comment(comment)
    post = deleted(change)
    return [] if post is None else _of_post(post)


def news_of(change: Change) -> list[News]:
    """What a change is to others; nothing if it is of no concern."""
    if (comment := commented(change)) is not None:
        return _of_comment(comment)
    if change.kind != "INSERT" or change.new is None:
        return []
    if (post := written(change)) is not None:
        return _of_post(post)
    if is_like(change.keys):
        return _of_like(like_from(change.new))
    if is_following(change.keys):
        return _of_follow(following_from(change.new))
    return []


def _of_like(like: Like) -> list[News]:
    """Merge the likes of one post within a window: the key has the time of the first, the order that of the last."""
    if like.post_author is None or like.user_id == like.post_author:
        return []
    window = window_of(like.created_at)
    notification = _notification(
        NotificationKind.LIKE,
        like.post_author,
        like.created_at,
        like.user_id,
        (like.post_id,),
        post_id=like.post_id,
        began=window,
    )
    return [News(("like", like.post_id, like.user_id, iso(window)), notification)]


def _of_comment(comment: Comment) -> list[News]:
    """The post's author is told of the comment; those it mentions of that, unless they are the author."""
    if comment.post_author is None or comment.post_visibility is None:
        return []
    about = comment.post_id, comment.comment_id
    mentioned = (user for user in comment.mentions or () if user != comment.post_author)
    news = _mentions(
        mentioned, comment.user_id, comment.created_at, about, (comment.post_author, comment.post_visibility)
    )
    if comment.user_id == comment.post_author:
        return news
    notification = _notification(
        NotificationKind.COMMENT, comment.post_author, comment.created_at, comment.user_id, about, *about
    )
    return [News(("comment", *about), notification), *news]


def _of_post(post: Post) -> list[News]:
    return _mentions(
        post.mentions or (), post.author_id, post.created_at, (post.post_id,), (post.author_id, post.visibility)
    )


def _mentions(
    users: Iterable[str],
    actor_id: str,
    moment: datetime,
    about: tuple[str, ...],
    seen_by: tuple[str, Visibility],
) -> list[News]:
    """`about` is the post that mentions them, or the post and the comment."""
    if seen_by[1] is Visibility.PRIVATE:
        return []
    return [
        News(
            ("mention", *about, user),
            _notification(NotificationKind.MENTION, user, moment, actor_id, about, *about),
            seen_by,
        )
        for user in dict.fromkeys(users)
        if user != actor_id
    ]


def _of_follow(follow: Follow) -> list[News]:
    """At most one for each follower and day."""
    notification = _notification(
        NotificationKind.FOLLOW, follow.followee_id, follow.since, follow.follower_id, (follow.follower_id,)
    )
    return [News(("follow", follow.followee_id, follow.follower_id, iso(follow.since)[:10]), notification)]


def _notification(
    kind: NotificationKind,
    user_id: str,
    moment: datetime,
    actor_id: str,
    about: tuple[str, ...],
    post_id: str | None = None,
    comment_id: str | None = None,
    *,
    began: datetime | None = None,
) -> Notification:
    """`about` distinguishes it from others of its kind at the same moment. `began` is the moment in its key."""
    return Notification(
        user_id=user_id,
        notification_id=keys.notification(user_id, began or moment, f"{kind.value}-{_digest(*about)[:20]}").sort,
        kind=kind,
        created_at=moment,
        expires_at=moment + LIFETIME,
        actor_id=actor_id,
        actor_count=1,
        post_id=post_id,
        comment_id=comment_id,
    )


def window_of(moment: datetime) -> datetime:
    """The beginning of the window of likes that a moment lies in."""
    milliseconds = epoch_ms(moment)
    return from_epoch_ms(milliseconds - milliseconds % (LIKES_WINDOW.seconds * 1000))


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:32]
