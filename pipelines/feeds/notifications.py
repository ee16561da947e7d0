"""Notifications of likes, comments, follows and mentions by other users. A user's own actions cause none.

A notification is deduplicated by a mark that names its cause, not its stream record. A user who likes, unlikes and
likes again within a window counts as one liker, and a second follow on the same day causes no second notification.

The unread notifications of a deleted post or comment are deleted. Their keys follow from the deleted item; those of
earlier deleted likes are found among the author's notifications. A record and the deletion of its item are handled in
stream order. The deletion of a notification also sets its mark, so that a record that is handled late, as from a dead
letter, does not create it again.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256

from datastore.change_streams import exactly_once as effects
from datastore.change_streams.change import Change
from datastore.change_streams.exactly_once import Effect
from datastore.feeds.change_completion import complete_changes
from datastore.feeds.comments import Comment, added_comment, deleted_comment
from datastore.feeds.follows import Follow, is_following
from datastore.feeds.likes import Like, is_like
from datastore.feeds.notifications import (
    LIFETIME,
    LIKES_WINDOW,
    Notification,
    NotificationKind,
    may_receive,
    notification_write,
    retract,
    retract_of_post,
)
from datastore.feeds.posts import Post, PostChildren, created_post, deleted_post
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import notifications as keys
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.model.timestamps import epoch_ms, from_epoch_ms, iso
from datastore.primitives.tasks import bounded_gather
from datastore.session.store import Store


@dataclass(frozen=True, slots=True)
class PendingNotification:
    """A notification to write, once for its `mark`."""

    mark: tuple[str, ...]
    notification: Notification
    #: The author and visibility of the post, if the recipient may be unable to see it. None if the recipient is the
    #: author, or there is no post.
    audience: tuple[str, Visibility] | None = None


class NotificationHandler:
    """The handler that writes and deletes notifications."""

    name = "notifications"

    def __init__(self, open_store: Callable[[], Store], now: Callable[[], datetime]) -> None:
        self._open_store = open_store
        self._now = now

    async def handle(self, changes: Sequence[Change]) -> None:
        now = self._now()
        changes = await complete_changes(self._open_store, changes)
        notifications = [
            pending
            for change in changes
            for pending in notifications_of(change)
            if pending.notification.is_kept_at(now)
        ]
        if notifications:
            await self._notify(self._open_store(), notifications, now)
        deletions = [change for change in changes if _is_deletion(change)]
        if deletions:
            await self._retract(self._open_store(), deletions, now)

    async def _notify(self, store: Store, notifications: Sequence[PendingNotification], now: datetime) -> None:
        allowed = await asyncio.gather(*[_may_receive(store, pending) for pending in notifications])
        # A withheld notification is marked too: a repeated record must not create it once its recipient has joined.
        notified = [
            Effect(self._effect(pending), (notification_write(pending.notification),) if is_allowed else ())
            for pending, is_allowed in zip(notifications, allowed, strict=True)
        ]
        await effects.apply(store, CONSUMER_TABLE, notified, now)

    async def _retract(self, store: Store, changes: Sequence[Change], now: datetime) -> None:
        """Delete the unread notifications of deleted items, and those of a like only if its post is deleted.

        The posts of likes are read in one batch. The key of a notification does not follow from the post alone if its
        like was deleted before the post. The author's unread notifications are therefore read.
        """
        likes = [Like.decoder(change.old) for change in changes if is_like(change.keys) and change.old is not None]
        unavailable = (await PostChildren(store).unavailable(like.post_id for like in likes)).all if likes else set()
        notifications = [pending for like in likes if like.post_id in unavailable for pending in _of_like(like)]
        notifications += [pending for change in changes for pending in _of_deletion(change)]
        notifications = [pending for pending in notifications if pending.notification.is_kept_at(now)]
        await effects.apply(
            store, CONSUMER_TABLE, [Effect(self._effect(pending), ()) for pending in notifications], now
        )
        await retract(store, [pending.notification for pending in notifications])
        posts = [post for change in changes if (post := deleted_post(change)) is not None]
        # Only the author could like a private post or comment on it: there is nothing to delete.
        shown = [post for post in posts if post.visibility is not Visibility.PRIVATE]
        await bounded_gather(
            [
                partial(retract_of_post, store, post.author_id, post.post_id, window_of(post.created_at))
                for post in shown
            ]
        )

    def _effect(self, pending: PendingNotification) -> str:
        return f"{self.name}:{_digest(*pending.mark)}"


async def _may_receive(store: Store, pending: PendingNotification) -> bool:
    return pending.audience is None or await may_receive(store, pending.notification.user_id, *pending.audience)


def _is_deletion(change: Change) -> bool:
    """Return whether the change deleted a like, comment or post."""
    is_unliked = change.kind == "REMOVE" and is_like(change.keys)
    return is_unliked or deleted_comment(change) is not None or deleted_post(change) is not None


def _of_deletion(change: Change) -> list[PendingNotification]:
    """Return the notifications that a deleted comment or post had caused."""
    if (comment := deleted_comment(change)) is not None:
        return _of_comment(comment)
    post = deleted_post(change)
    return [] if post is None else _of_post(post)


def notifications_of(change: Change) -> list[PendingNotification]:
    """Return the notifications that a change causes."""
    if (comment := added_comment(change)) is not None:
        return _of_comment(comment)
    if change.kind != "INSERT" or change.new is None:
        return []
    if (post := created_post(change)) is not None:
        return _of_post(post)
    if is_like(change.keys):
        return _of_like(Like.decoder(change.new))
    if is_following(change.keys):
        return _of_follow(Follow.decoder(change.new))
    return []


def _of_like(like: Like) -> list[PendingNotification]:
    """Merge the likes of one post within a window. The key has the start of the window, the position the last time."""
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
        key_time=window,
    )
    return [PendingNotification(("like", like.post_id, like.user_id, iso(window)), notification)]


def _of_comment(comment: Comment) -> list[PendingNotification]:
    """Return the notifications of the post's author, and of the mentioned users other than the author."""
    if comment.post_author is None or comment.post_visibility is None:
        return []
    about = comment.post_id, comment.comment_id
    mentioned = (user for user in comment.mentions or () if user != comment.post_author)
    audience = comment.post_author, comment.post_visibility
    mentions = _mentions(mentioned, comment.author_id, comment.created_at, about, audience)
    if comment.author_id == comment.post_author:
        return mentions
    notification = _notification(
        NotificationKind.COMMENT, comment.post_author, comment.created_at, comment.author_id, about, *about
    )
    return [PendingNotification(("comment", *about), notification), *mentions]


def _of_post(post: Post) -> list[PendingNotification]:
    return _mentions(
        post.mentions or (), post.author_id, post.created_at, (post.post_id,), (post.author_id, post.visibility)
    )


def _mentions(
    users: Iterable[str],
    actor_id: str,
    moment: datetime,
    about: tuple[str, ...],
    audience: tuple[str, Visibility],
) -> list[PendingNotification]:
    """Return the notifications of mentioned users. `about` is the post, or the post and the comment."""
    if audience[1] is Visibility.PRIVATE:
        return []
    return [
        PendingNotification(
            ("mention", *about, user),
            _notification(NotificationKind.MENTION, user, moment, actor_id, about, *about),
            audience,
        )
        for user in dict.fromkeys(users)
        if user != actor_id
    ]


def _of_follow(follow: Follow) -> list[PendingNotification]:
    """Return at most one notification for each follower and day."""
    notification = _notification(
        NotificationKind.FOLLOW, follow.followee_id, follow.since, follow.follower_id, (follow.follower_id,)
    )
    return [
        PendingNotification(("follow", follow.followee_id, follow.follower_id, iso(follow.since)[:10]), notification)
    ]


def _notification(
    kind: NotificationKind,
    user_id: str,
    moment: datetime,
    actor_id: str,
    about: tuple[str, ...],
    post_id: str | None = None,
    comment_id: str | None = None,
    *,
    key_time: datetime | None = None,
) -> Notification:
    """Return a notification. `about` distinguishes it from others of its kind at the same time."""
    return Notification(
        user_id=user_id,
        notification_id=keys.notification(user_id, key_time or moment, f"{kind.value}-{_digest(*about)[:20]}").sort,
        kind=kind,
        created_at=moment,
        expires_at=moment + LIFETIME,
        actor_id=actor_id,
        actor_count=1,
        post_id=post_id,
        comment_id=comment_id,
    )


def window_of(moment: datetime) -> datetime:
    """Return the start of the window of likes that contains a time."""
    milliseconds = epoch_ms(moment)
    return from_epoch_ms(milliseconds - milliseconds % (LIKES_WINDOW.seconds * 1000))


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:32]
