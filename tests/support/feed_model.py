"""A model of the feed, computed from the operations and their responses alone: no keys, counters or streams."""

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

WINDOW = timedelta(minutes=5)

# kind, recipient, post, comment, and for likes the window, for follows the day
Told = tuple[str, str, str | None, str | None, str]


@dataclass(frozen=True, slots=True)
class UserOperation:
    """An operation of a user. Those of one user run one after another, those of different users concurrently."""

    kind: str
    user: str
    post: str = ""
    other: str = ""
    comment: str = ""
    text: str = ""
    visibility: str = "PUBLIC"


@dataclass(slots=True)
class ModelPost:
    author: str
    created_at: str
    visibility: str
    tags: tuple[str, ...]
    deleted: bool = False

    @property
    def is_public(self) -> bool:
        return self.visibility == "PUBLIC"


@dataclass(slots=True)
class FeedModel:
    """The state that results from the completed operations."""

    posts: dict[str, ModelPost] = field(default_factory=dict)
    likes: dict[tuple[str, str], str] = field(default_factory=dict)
    comments: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    follows: dict[tuple[str, str], str] = field(default_factory=dict)
    reported: dict[Told, set[str]] = field(default_factory=lambda: defaultdict(set))

    def answered(self, operation: UserOperation, answer: Any) -> None:
        """Apply a completed operation; `answer` is the value of its field."""
        getattr(self, f"_{operation.kind}")(operation, answer)

    def _create_post(self, operation: UserOperation, answer: Any) -> None:
        if operation.post in self.posts:
            return
        self.posts[operation.post] = ModelPost(
            operation.user, answer["createdAt"], operation.visibility, tuple(answer["tags"])
        )
        if operation.visibility == "PUBLIC":
            for mentioned in set(answer["mentionedUserIds"]) - {operation.user}:
                self.reported["MENTION", mentioned, operation.post, None, ""].add(operation.user)

    def _delete_post(self, operation: UserOperation, _answer: Any) -> None:
        self.posts[operation.post].deleted = True

    def _like(self, operation: UserOperation, answer: Any) -> None:
        key = operation.post, operation.user
        if key in self.likes:
            return
        self.likes[key] = answer["createdAt"]
        author = self.posts[operation.post].author
        if author != operation.user:
            self.reported["LIKE", author, operation.post, None, window(answer["createdAt"])].add(operation.user)

    def _unlike(self, operation: UserOperation, _answer: Any) -> None:
        self.likes.pop((operation.post, operation.user), None)

    def _comment(self, operation: UserOperation, answer: Any) -> None:
        key = operation.post, operation.comment
        if key in self.comments:
            return
        self.comments[key] = operation.user, answer["createdAt"]
        author = self.posts[operation.post].author
        if author != operation.user:
            self.reported["COMMENT", author, operation.post, operation.comment, ""].add(operation.user)
        if self.posts[operation.post].is_public:
            for mentioned in set(answer["mentionedUserIds"]) - {operation.user, author}:
                self.reported["MENTION", mentioned, operation.post, operation.comment, ""].add(operation.user)

    def _delete_comment(self, operation: UserOperation, _answer: Any) -> None:
        self.comments.pop((operation.post, operation.comment), None)

    def _follow(self, operation: UserOperation, answer: Any) -> None:
        key = operation.user, operation.other
        if key not in self.follows:
            self.follows[key] = answer["createdAt"]
            self.reported["FOLLOW", operation.other, None, None, answer["createdAt"][:10]].add(operation.user)

    def _unfollow(self, operation: UserOperation, _answer: Any) -> None:
        self.follows.pop((operation.user, operation.other), None)

    # The resulting state.

    def live(self, post_id: str) -> bool:
        return post_id in self.posts and not self.posts[post_id].deleted

    def post_counts(self) -> dict[str, tuple[int, int]]:
        """Return the likes and comments of each existing post."""
        likes = Counter(post for post, _ in self.likes)
        comments = Counter(post for post, _ in self.comments)
        return {post: (likes[post], comments[post]) for post in self.posts if self.live(post)}

    def user_counts(self, users: list[str]) -> dict[str, tuple[int, int, int]]:
        """Return the posts, followers and followed users of each user."""
        posts = Counter(p.author for p in self.posts.values() if not p.deleted and p.visibility != "PRIVATE")
        followers = Counter(followee for _, followee in self.follows)
        following = Counter(follower for follower, _ in self.follows)
        return {user: (posts[user], followers[user], following[user]) for user in users}

    def feeds(self, users: list[str]) -> dict[str, set[str]]:
        """Return the posts in each home feed."""
        by_author = defaultdict(list)
        for post_id, post in self.posts.items():
            if not post.deleted and post.visibility != "PRIVATE":
                by_author[post.author].append((post.created_at, post_id))
        feeds: dict[str, set[str]] = {user: set() for user in users}
        for (follower, followee), since in self.follows.items():
            feeds[follower] |= {post_id for created_at, post_id in by_author[followee] if created_at >= since}
        return feeds

    def notifications(self, users: list[str]) -> dict[str, Counter[tuple[str, str | None, str | None, int, str]]]:
        """Return the notifications of each user: kind, post, comment, number of actors, and the actor if there is only
        one.
        """
        found: dict[str, Counter[tuple[str, str | None, str | None, int, str]]] = {user: Counter() for user in users}
        for (kind, recipient, post, comment, _), actors in self.reported.items():
            if post is not None and not self.live(post):
                continue
            if post is not None and comment is not None and (post, comment) not in self.comments:
                continue
            for group in [actors] if kind == "LIKE" else [{actor} for actor in actors]:
                actor = next(iter(group)) if len(group) == 1 else ""
                found[recipient][kind, post, comment, len(group), actor] += 1
        return found

    def top_authors(self, month: str) -> list[tuple[str, int, int, int]]:
        """Return the top hundred authors of a month: author, posts, likes and comments."""
        scores: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for post in self.posts.values():
            if not post.deleted and post.is_public and post.created_at.startswith(month):
                scores[post.author][0] += 1
        for (post_id, user), created_at in self.likes.items():
            self._score(scores, 1, post_id, user, created_at, month)
        for (post_id, _), (user, created_at) in self.comments.items():
            self._score(scores, 2, post_id, user, created_at, month)
        ranked = sorted(scores.items(), key=lambda item: (-sum(item[1]), item[0]))
        return [(author, numbers[0], numbers[1], numbers[2]) for author, numbers in ranked if sum(numbers) > 0][:100]

    def _score(self, scores: Any, column: int, post_id: str, user: str, created_at: str, month: str) -> None:
        post = self.posts[post_id]
        if not post.deleted and post.is_public and user != post.author and created_at.startswith(month):
            scores[post.author][column] += 1

    def trending(self, window: str) -> list[tuple[str, int]]:
        """Return the top hundred tags of an hour (2026-06-25T14) or a day (2026-06-25) with their posts."""
        counts = Counter(
            tag
            for post in self.posts.values()
            if not post.deleted and post.is_public and post.created_at.startswith(window)
            for tag in post.tags
        )
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:100]


def window(moment: str) -> str:
    """Return the start of the window of five minutes that contains a moment."""
    seconds = datetime.fromisoformat(moment).timestamp()
    start = seconds - seconds % WINDOW.total_seconds()
    return datetime.fromtimestamp(start, UTC).isoformat()


KINDS = {
    "create_post": 17,
    "like": 30,
    "unlike": 6,
    "comment": 14,
    "delete_comment": 3,
    "follow": 17,
    "unfollow": 5,
    "delete_post": 3,
    "repeat": 5,
}
TAGS = [f"tag{number}" for number in range(30)]


class Chooser:
    """Chooses the next operation of a user at random, from the operations that are known to be done."""

    def __init__(self, users: list[str], rng: random.Random, new_comment_id: Any) -> None:
        self._users = users
        self._rng = rng
        self._new_comment_id = new_comment_id
        self._done: dict[str, list[UserOperation]] = defaultdict(list)
        self._posts: list[UserOperation] = []
        self._count = 0

    def next(self, user: str) -> UserOperation:
        kind = self._rng.choices([*KINDS], [*KINDS.values()])[0]
        operation = getattr(self, f"_{kind}")(user) or self._create_post(user)
        self._done[user].append(operation)
        return operation

    def created(self, operation: UserOperation) -> None:
        """Make the post available to other users."""
        self._posts.append(operation)

    def _create_post(self, user: str) -> UserOperation:
        self._count += 1
        visibility = self._rng.choices(["PUBLIC", "FOLLOWERS", "PRIVATE"], [7, 2, 1])[0]
        words = [f"post {self._count}", *(f"#{tag}" for tag in self._rng.sample(TAGS, self._rng.randint(0, 3)))]
        if visibility == "PUBLIC" and self._rng.random() < 0.3:
            words.append(f"@{self._rng.choice(self._users)}")
        return UserOperation("create_post", user, post=f"p{self._count}", text=" ".join(words), visibility=visibility)

    def _like(self, user: str) -> UserOperation | None:
        post = self._any_post()
        return post and UserOperation("like", user, post=post.post)

    def _unlike(self, user: str) -> UserOperation | None:
        return self._about_own(user, "like", "unlike")

    def _comment(self, user: str) -> UserOperation | None:
        if (post := self._any_post()) is None:
            return None
        # Who follows when the pipeline reads is unknown to a model: therefore only public posts mention users.
        mentions = post.visibility == "PUBLIC" and self._rng.random() < 0.2
        text = f"indeed @{self._rng.choice(self._users)}" if mentions else "indeed"
        return UserOperation("comment", user, post=post.post, comment=self._new_comment_id(), text=text)

    def _delete_comment(self, user: str) -> UserOperation | None:
        return self._about_own(user, "comment", "delete_comment")

    def _follow(self, user: str) -> UserOperation | None:
        others = [other for other in self._users if other != user]
        return UserOperation("follow", user, other=self._rng.choice(others)) if others else None

    def _unfollow(self, user: str) -> UserOperation | None:
        return self._about_own(user, "follow", "unfollow")

    def _delete_post(self, user: str) -> UserOperation | None:
        return self._about_own(user, "create_post", "delete_post")

    def _repeat(self, user: str) -> UserOperation | None:
        return self._rng.choice(self._done[user]) if self._done[user] else None

    def _any_post(self) -> UserOperation | None:
        """Return a post, mostly one of the newest."""
        if not self._posts:
            return None
        return self._rng.choice(self._posts[-50:] if self._rng.random() < 0.7 else self._posts)

    def _about_own(self, user: str, kind: str, then: str) -> UserOperation | None:
        own = [operation for operation in self._done[user][-60:] if operation.kind == kind]
        if not own:
            return None
        one = self._rng.choice(own)
        return UserOperation(then, user, post=one.post, other=one.other, comment=one.comment)
