"""Compiled operations of a Strawberry schema. Run it with `python -m jit.examples.with_strawberry`."""

import asyncio

import strawberry
from strawberry.extensions import ParserCache

from jit import cache_of
from jit.strawberry import StrawberryExecutor


class FilmExecutor(StrawberryExecutor):
    """The class of a value decides its type here, as in most schemas: one check serves all values of a class."""

    types_by_class = True


@strawberry.type
class Director:
    name: str


@strawberry.type
class Film:
    title: str
    director_name: strawberry.Private[str]

    @strawberry.field
    async def director(self, info: strawberry.Info) -> Director:
        await asyncio.sleep(0)
        return Director(name=self.director_name)


@strawberry.type
class Films:
    @strawberry.field
    def films(self, first: int = 10) -> list[Film]:
        films = [
            Film(title="Playtime", director_name="Jacques Tati"),
            Film(title="Ran", director_name="Akira Kurosawa"),
        ]
        return films[:first]


async def main() -> None:
    # An operation is found by its nodes: the extension keeps the nodes of a text. Without it nothing is compiled.
    schema = strawberry.Schema(Films, execution_context_class=FilmExecutor, extensions=[ParserCache])
    for first in (0, 1, 2):
        result = await schema.execute(
            "query ($first: Int!) { films(first: $first) { title director { name } } }",
            variable_values={"first": first},
        )
        print(result.data, result.errors)

    print(cache_of(schema._schema).statistics())


if __name__ == "__main__":
    asyncio.run(main())
