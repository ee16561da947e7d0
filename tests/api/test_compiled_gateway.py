"""Compiled and interpreted operations of the gateway have the same responses, from the same DynamoDB calls."""

import os
from collections import Counter
from dataclasses import dataclass
from functools import cache
from inspect import isawaitable
from random import Random
from typing import Any

import pytest
from graphql import (
    DocumentNode,
    FieldNode,
    GraphQLError,
    GraphQLSchema,
    NameNode,
    OperationDefinitionNode,
    OperationType,
    execute,
    get_named_type,
    is_abstract_type,
    is_leaf_type,
    is_required_argument,
    parse,
    print_ast,
    validate,
)
from strawberry.execution import optimized_is_awaitable
from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

import schema as api
from datastore.model.identity import Identity, Role
from server.documents.document_cache import Documents, GatewayExecutor
from server.documents.settings import document_settings
from server.http.graphiql import examples
from tests.support.executor_differences import nulled
from tests.support.feed_steps import create_profiles, write_post
from tests.support.served import Served, call_name

GENERATED = int(os.environ.get("COMPILED_EXAMPLES", "40"))


class CompileAtOnce(GatewayExecutor):
    compile_after = 1


@dataclass
class Execution:
    """The response of an executor, and its DynamoDB calls."""

    data: Any
    errors: set[tuple[Any, ...]]
    calls: Counter[str]


async def ask_executor(
    served: Served, executor: Any, document: DocumentNode, variables: dict[str, Any] | None, role: Role
) -> Execution:
    context = served.gateway.open_context(Identity("demo-ada", role, "ada@example.org"))
    try:
        result: Any = execute(
            served.gateway.server.documents.schema,
            document,
            context_value=context,
            variable_values=variables,
            is_awaitable=optimized_is_awaitable,  # type: ignore[arg-type]
            executor_class=executor,
        )
        result = await result if isawaitable(result) else result
    finally:
        context.close()
    errors = {_comparable_error(error, result.data) for error in result.errors or ()}
    return Execution(result.data, errors, Counter(map(call_name, context.meter.calls)))


def _comparable_error(error: GraphQLError, data: Any) -> tuple[Any, ...]:
    """Return a comparable error; only the path of the null if it made a parent null.

    Which of several errors makes a parent null first is a matter of timing.
    """
    path = tuple(error.path or ())
    place = nulled(data, path)
    if place is not None and place != path:
        return (place,)
    return (path, error.message, tuple(error.locations or ()), repr(error.extensions))


@cache
def example_queries() -> list[tuple[DocumentNode, dict[str, Any] | None]]:
    found = []
    for example in examples():
        document = parse(example.query)
        (operation,) = (part for part in document.definitions if isinstance(part, OperationDefinitionNode))
        if operation.operation is OperationType.QUERY:
            found.append((document, example.variables))
    return found


def generated(schema: GraphQLSchema, seed: int) -> DocumentNode:
    """Return a query of the root fields of some examples, with random selections."""
    rng = Random(seed)
    roots = []
    for document, variables in example_queries():
        if variables is None:
            operation = document.definitions[0]
            assert isinstance(operation, OperationDefinitionNode)
            roots += [node for node in operation.selection_set.selections if isinstance(node, FieldNode)]
    parts = []
    for number, node in enumerate(rng.sample(roots, rng.randint(1, 3))):
        bare = FieldNode(
            name=node.name, alias=NameNode(value=f"r{number}"), arguments=node.arguments, directives=node.directives
        )
        assert schema.query_type is not None
        kind = get_named_type(schema.query_type.fields[node.name.value].type)
        parts.append(print_ast(bare) + ("" if is_leaf_type(kind) else _selection(schema, kind, rng, 4)))
    return parse(
        "query ($yes: Boolean = true, $no: Boolean = false) {" + " ".join(parts) + " __typename @skip(if: $no)}"
    )


def _selection(schema: GraphQLSchema, kind: Any, rng: Random, depth: int) -> str:
    parts = ["__typename"] if is_abstract_type(kind) or rng.random() < 0.2 else []
    fields = list(getattr(kind, "fields", {}).items())
    for name, field in rng.sample(fields, min(len(fields), rng.randint(2, 6))):
        inner = get_named_type(field.type)
        if any(map(is_required_argument, field.args.values())) or (depth == 0 and not is_leaf_type(inner)):
            continue
        given = "(first: 3)" if "first" in field.args else ""
        directive = rng.choice(["", "", "", " @include(if: $yes)", " @skip(if: $yes)", " @include(if: $no)"])
        below = "" if is_leaf_type(inner) else _selection(schema, inner, rng, depth - 1)
        parts.append(f"{name}{given}{directive}{below}")
    if is_abstract_type(kind):
        for member in schema.get_possible_types(kind)[:3]:
            parts.append(f"... on {member.name} {_selection(schema, member, rng, max(0, depth - 1))}")
    return "{" + " ".join(parts or ["__typename"]) + "}"


def lists(calls: Counter[str]) -> Counter[str]:
    return Counter({call: count for call, count in calls.items() if "GetItem" not in call})


def point_reads(calls: Counter[str]) -> int:
    return sum(count for call, count in calls.items() if "GetItem" in call)


async def keep_logs_as_they_are(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the examples write request logs, and later operations none, so that all lists of logs are equal."""
    assert served.gateway.services is not None
    logs = served.gateway.services.request_logs
    for document, variables in example_queries():
        await ask_executor(served, StrawberryGraphQLCoreExecutionContext, document, variables, Role.ADMIN)
    await logs.drained()
    monkeypatch.setattr(logs, "add", lambda log: True)


@pytest.mark.proof
@pytest.mark.timeout(120)
async def test_compiled_operations_have_the_responses_and_calls_of_interpreted_ones(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.gateway.background.demo().load()
    await keep_logs_as_they_are(served, monkeypatch)
    schema = served.gateway.server.documents.schema
    queries = [(generated(schema, seed), None) for seed in range(GENERATED)]
    # Two fragments may select fields of the same name but different types. Such documents are refused.
    valid = [(document, variables) for document, variables in queries if not validate(schema, document)]
    assert len(valid) > GENERATED / 2
    answers = 0
    for document, variables in [*example_queries(), *valid]:
        role = Role.ADMIN if answers % 2 else Role.USER
        expected = await ask_executor(served, StrawberryGraphQLCoreExecutionContext, document, variables, role)
        for _ in range(2):  # the second time with what the first execution learned
            found = await ask_executor(served, CompileAtOnce, document, variables, role)

            assert repr(found.data) == repr(expected.data), print_ast(document)
            assert found.errors == expected.errors, print_ast(document)
            # The scan cache keeps scanned tables for some time.
            assert not lists(found.calls) - lists(expected.calls), print_ast(document)
            # The keys in a batch depend on which list arrives first.
            assert point_reads(found.calls) <= point_reads(expected.calls) + 1, print_ast(document)
        answers += 1
    assert answers > 50


CANCELLED_BY_A_SIBLING = """{
  a: post(id: "p") { author { name } comments(after: "junk") { nodes { authorId } } }
  b: post(id: "p") { author { name } }
}"""


async def test_a_read_that_a_failed_field_cancelled_is_issued_again_for_another_field(served: Served) -> None:
    """The comments of `a` fail at once, while its author is read, which `b` needs, too."""
    await create_profiles(served, "ada")
    await write_post(served, "p")
    for _ in range(3):  # first by graphql-core, then compiled
        answer = await served.ask(CANCELLED_BY_A_SIBLING, user="ada")

        assert answer.status == 200
        assert answer.data == {"a": None, "b": {"author": {"name": "Ada"}}}
        assert [error["path"] for error in answer.errors or ()] == [["a", "comments"]]


@pytest.mark.parametrize(("setting", "compiles"), [("compiled", True), ("interpreted", False), ("", True)])
def test_the_setting_chooses_the_executor(setting: str, compiles: bool) -> None:
    documents = Documents(api.build(), compiles=document_settings({"GATEWAY_EXECUTOR": setting}).compiles)
    program = documents.prepare("{areas}").operation(None).program

    programs = [program.program() for _ in range(3)]

    assert (programs[-1] is not None) is (compiles and GatewayExecutor.compile_after > 0)


def test_another_value_of_the_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="GATEWAY_EXECUTOR must be compiled or interpreted"):
        document_settings({"GATEWAY_EXECUTOR": "fast"})
