"""Compiled operations with graphql-core alone. Run it with `python -m jit.examples.plain`."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from graphql import ExecutionResult, OperationDefinitionNode, build_schema, execute, parse, validate

from jit import CompiledExecutor, cache_of, operation_of

SCHEMA = build_schema("""
    type Query { books(author: String): [Book!]! }
    type Book { title: String! author: String! reviews: [String!]! }
""")


@dataclass
class Book:
    title: str
    author: str

    async def reviews(self, info: Any) -> list[str]:
        """Return the reviews, as a service would after a while."""
        await asyncio.sleep(0)
        return [f"{self.title} is worth reading."]


class Library:
    """The root value: graphql-core's default resolver calls its methods."""

    def books(self, info: Any, author: str | None = None) -> list[Book]:
        books = [Book("Emma", "Jane Austen"), Book("Middlemarch", "George Eliot")]
        return [book for book in books if author in (None, book.author)]


async def completed(result: Awaitable[ExecutionResult] | ExecutionResult) -> ExecutionResult:
    return result if isinstance(result, ExecutionResult) else await result


async def main() -> None:
    document = parse("query Books($author: String) { books(author: $author) { title reviews } }")
    assert validate(SCHEMA, document) == [], "Only valid documents may be compiled."

    # As graphql-core's executor. The operation is compiled when it is executed for the second time, and found again by
    # its nodes: parse a text once, and keep its document.
    for author in ("Jane Austen", "George Eliot"):
        result = await completed(
            execute(SCHEMA, document, Library(), variable_values={"author": author}, executor_class=CompiledExecutor)
        )
        print(result.formatted)

    # As a prepared operation, which saves the preparations of `execute`.
    node = document.definitions[0]
    assert isinstance(node, OperationDefinitionNode)
    operation = operation_of(CompiledExecutor, SCHEMA, document, node)
    for _ in range(3):
        print((await completed(operation.execute(None, {"author": "Jane Austen"}, root=Library()))).formatted)

    print(cache_of(SCHEMA).statistics())
    cache_of(SCHEMA).clear()


if __name__ == "__main__":
    asyncio.run(main())
