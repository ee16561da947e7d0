"""The four requests with which whole servers are compared: W1 … W4."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.workload_data import AUTHORS, MATCHES, POSTS_OF_EACH, PROLIFIC, VIEWER, match_id, post_id

Body = Mapping[str, Any]

POSTS, ENTRIES, COMMENTS_SHOWN = 50, 25, 3

W1 = """query W1($id: ID!) {
  post(id: $id) { postId authorId createdAt visibility text mediaRef tags likeCount commentCount }
}"""

W2 = """query W2($authorId: ID!, $first: Int!) {
  postsByAuthor(authorId: $authorId, first: $first) {
    edges {
      cursor
      node { postId createdAt text mediaRef tags likeCount commentCount author { userId name avatarRef } }
    }
    pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
  }
}"""

W3 = """query W3($userId: ID!, $first: Int!) {
  homeFeed(userId: $userId, first: $first) {
    edges {
      cursor
      node {
        postId
        createdAt
        post {
          text mediaRef tags likeCount commentCount
          author { userId name avatarRef }
          comments(first: 3) { nodes { commentId text createdAt author { userId name avatarRef } } }
        }
      }
    }
    pageInfo { hasNextPage endCursor }
  }
}"""

W4 = """query W4($ids: [ID!]!) {
  matches(ids: $ids) {
    matchId leagueCode startTime status phase round format
    homeTeam { teamId name code imageUrl }
    awayTeam { teamId name code imageUrl }
  }
}"""


@dataclass(frozen=True, slots=True)
class Workload:
    """A repeated request."""

    name: str
    title: str
    #: Returns the documents and variables of consecutive requests.
    documents: Callable[[], Iterator[tuple[str, Body]]]
    #: Returns whether the data of a response are complete.
    holds: Callable[[Body], bool]
    #: The number of requests in a round.
    requests: int


def _repeated(text: str, variables: Body) -> Callable[[], Iterator[tuple[str, Body]]]:
    return lambda: itertools.repeat((text, variables))


def _posts_in_turn() -> Iterator[tuple[str, Body]]:
    ids = itertools.cycle(post_id(author, number) for number in range(POSTS_OF_EACH) for author in AUTHORS)
    return ((W1, {"id": id}) for id in ids)


def _fills_feed(data: Body) -> bool:
    """Return whether all posts have their comments, each with its author."""
    posts = [edge["node"]["post"] for edge in data["homeFeed"]["edges"]]
    comments = [post["comments"]["nodes"] for post in posts]
    return len(posts) == ENTRIES and all(
        len(nodes) == COMMENTS_SHOWN and all(node["author"]["name"] for node in nodes) for nodes in comments
    )


def _shows_posts(first: int) -> Callable[[Body], bool]:
    return lambda data: sum(edge["node"]["author"] is not None for edge in data["postsByAuthor"]["edges"]) == first


def posts_by_author(first: int) -> Workload:
    """Return W2 for a page of `first` posts."""
    documents = _repeated(W2, {"authorId": PROLIFIC, "first": first})
    title = f"postsByAuthor(first: {first}) with their author"
    return Workload(f"W2 of {first}", title, documents, _shows_posts(first), requests=250)


WORKLOADS = (
    Workload("W1", "post(id)", _posts_in_turn, lambda data: data["post"]["text"] != "", requests=1000),
    replace(posts_by_author(POSTS), name="W2"),
    Workload(
        "W3",
        f"homeFeed(first: {ENTRIES}) with posts, comments and users",
        _repeated(W3, {"userId": VIEWER, "first": ENTRIES}),
        _fills_feed,
        requests=80,
    ),
    Workload(
        "W4",
        f"matches(ids: {MATCHES}) with both teams",
        _repeated(W4, {"ids": [match_id(number) for number in range(MATCHES)]}),
        lambda data: sum(match["awayTeam"] is not None for match in data["matches"]) == MATCHES,
        requests=100,
    ),
)


_unseen = itertools.count(1)


def _never_seen() -> Iterator[tuple[str, Body]]:
    """Yield new documents, after a first one that all contenders get for the comparison of their data."""
    for number in itertools.chain([0], _unseen):
        yield (
            W2.replace("commentCount", f"commentCount same{number}: commentCount"),
            {"authorId": PROLIFIC, "first": 10},
        )


GROWTH = (
    *map(posts_by_author, (1, 10, 50, 100)),
    Workload("W2 of 10, new", "with a new document each time", _never_seen, _shows_posts(10), requests=200),
)
