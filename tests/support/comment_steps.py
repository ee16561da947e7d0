"""Documents and steps for the tests of comments."""

from typing import Any

from datastore.model.identity import Role
from tests.support.served import Answer, Served

ADD = """
mutation ($post: ID!, $id: ID, $text: String!) {
  createComment(postId: $post, input: {commentId: $id, text: $text}) {
    id postId commentId authorId createdAt text textLength mentionedUserIds
  }
}
"""

LIST = """
query ($post: ID!, $after: String, $before: String) {
  comments(postId: $post, after: $after, before: $before) {
    nodes { commentId text }
    pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
    lastEvaluatedKey
  }
}
"""

DELETE_POST = "mutation ($id: ID!) { deletePost(id: $id) { postId } }"

NODE = "query ($id: ID!) { node(id: $id) { __typename ... on Comment { text post { postId } } } }"

NO_PAGE = {"hasNextPage": False, "hasPreviousPage": False, "startCursor": None, "endCursor": None}

NOTHING: dict[str, Any] = {"nodes": [], "pageInfo": NO_PAGE, "lastEvaluatedKey": None}


async def ask_to_add(
    served: Served, user: str, text: str = "Nice", *, post: str = "p", id: str | None = None
) -> Answer:
    return await served.ask(ADD, {"post": post, "id": id, "text": text}, user=user)


async def add_comment(served: Served, user: str, text: str = "Nice", *, post: str = "p", id: str | None = None) -> Any:
    answer = await ask_to_add(served, user, text, post=post, id=id)
    assert answer.errors is None, answer.errors
    return answer.data["createComment"]


async def comments_of(served: Served, post: str = "p", user: str | None = None, role: Role = Role.USER) -> Any:
    answer = await served.ask(LIST, {"post": post}, user=user, role=role)
    assert answer.errors is None, answer.errors
    return answer.data["comments"]
