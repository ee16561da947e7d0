"""A comparison of compiled operations with graphql-core. Run it with `python -m jit.examples.benchmark`.

It prints the CPU time of an execution, as the median of alternating rounds in one process, and its ratio.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any, NamedTuple

from graphql import (
    DocumentNode,
    ExecutionResult,
    GraphQLField,
    GraphQLList,
    GraphQLObjectType,
    GraphQLSchema,
    GraphQLString,
    execute,
    parse,
)
from graphql.execution import Executor

from jit import CompiledExecutor

FIELDS = [f"field{number}" for number in range(10)]


class Row:
    """An object with ten attributes."""

    def __init__(self) -> None:
        for name in FIELDS:
            setattr(self, name, name)


class Comparison(NamedTuple):
    """A document, and the root value of its execution."""

    name: str
    document: DocumentNode
    root: Any


async def soon(source: Any, info: Any) -> str:
    return "text"


async def later(source: Any, info: Any) -> str:
    await asyncio.sleep(0)
    return "text"


def schema() -> GraphQLSchema:
    node: GraphQLObjectType = GraphQLObjectType(
        "Node",
        lambda: {
            "rows": GraphQLField(GraphQLList(node)),
            "node": GraphQLField(node, resolve=lambda source, info: source),
            "soon": GraphQLField(GraphQLString, resolve=soon),
            "later": GraphQLField(GraphQLString, resolve=later),
            **{name: GraphQLField(GraphQLString) for name in FIELDS},
        },
    )
    return GraphQLSchema(node)


def comparisons(size: int) -> list[Comparison]:
    """Return the comparisons, with lists of `size` objects."""
    ten = f"{{ rows {{ {' '.join(FIELDS)} }} }}"
    dicts = [dict.fromkeys(FIELDS, "text") for _ in range(size)]
    rows = {"rows": [Row() for _ in range(size)]}
    return [
        Comparison(f"{size} objects, 10 attributes", parse(ten), rows),
        Comparison(f"{size} dicts, 10 keys", parse(ten), {"rows": dicts}),
        Comparison(f"{size} coroutines that need not wait", parse("{ rows { soon } }"), rows),
        Comparison(f"{size} coroutines that wait", parse("{ rows { later } }"), rows),
        *(
            Comparison(f"{depth} levels that take info", parse("{ node " * depth + "{ field0 }" + " }" * depth), Row())
            for depth in (20, 80, 190)
        ),
    ]


async def data_of(schema: GraphQLSchema, work: Comparison, executor: type[Executor[Any]] | None) -> Any:
    result = execute(schema, work.document, work.root, executor_class=executor)
    answer = result if isinstance(result, ExecutionResult) else await result
    assert answer.errors is None, answer.errors
    return answer.data


async def main(size: int = 1_000, rounds: int = 15, clock: Callable[[], float] = process_time) -> None:
    sys.setrecursionlimit(10_000)  # graphql-core takes several frames for each level
    executed = schema()
    print(f"{'':36}{'graphql-core':>14}{'compiled':>12}{'ratio':>8}")
    for work in comparisons(size):
        seconds: dict[type[Executor[Any]] | None, list[float]] = {None: [], CompiledExecutor: []}
        expected = await data_of(executed, work, None)
        for _ in range(2):  # compiled at the second execution
            assert await data_of(executed, work, CompiledExecutor) == expected, "The results differ."
        for _ in range(rounds):
            for executor, times in seconds.items():
                start = clock()
                await data_of(executed, work, executor)
                times.append(clock() - start)
        core, compiled = (1_000 * median(times) for times in seconds.values())
        print(f"{work.name:36}{core:11.2f} ms{compiled:9.2f} ms{core / compiled if compiled else 0:8.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1_000, help="the number of objects in a list")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    asyncio.run(main(options.size, options.rounds))
