"""Names of the schema that generated code would contain are ASCII identifiers; other fields keep their resolvers."""

from types import SimpleNamespace
from typing import Any

import pytest
from graphql import ExecutionResult, GraphQLField, GraphQLObjectType, GraphQLSchema, GraphQLString

from jit import cache_of
from jit.field_plan import FieldPlan
from jit.field_resolvers import AttributeResolver, Batch, DirectResolver, Resolver, has_valid_names
from tests.support.executors import CompilingExecutor, first_operation

# The last one is an identifier that Python normalizes to `fi` in source code, but not in `getattr`.
HOSTILE = ["", "a b", "class", "1a", "x, y=1", "x if exit() else x", "x\nexit()", "__import__('os')._exit(1)", "ﬁ"]


class AttributeExecutor(CompilingExecutor):
    @classmethod
    def resolver_of(cls, plan: FieldPlan) -> Resolver:
        return AttributeResolver(plan.field.extensions["attribute"])


def direct_resolver(**names: Any) -> DirectResolver:
    fields: dict[str, Any] = {
        "is_async": True,
        "takes_self": False,
        "parents": ("parent",),
        "info": "info",
        "info_class": lambda *_: None,
        "convert": lambda *_: ({}, True),
    }
    return DirectResolver(lambda: None, **fields | names)


@pytest.mark.parametrize("name", HOSTILE)
async def test_an_attribute_without_an_identifier_is_read_by_its_own_resolver(name: str) -> None:
    field = GraphQLField(
        GraphQLString, resolve=lambda source, info: f"read {getattr(source, name)}", extensions={"attribute": name}
    )
    schema = GraphQLSchema(GraphQLObjectType("Query", {"value": field}))
    source = SimpleNamespace(**{name: "it", "fi": "another"})

    result = first_operation(schema, "{ value }", AttributeExecutor).execute(None, root=source)

    assert result == ExecutionResult({"value": "read it"}, None)
    assert cache_of(schema).statistics().compiled == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_no_other_name_of_a_resolver_is_written_unless_it_is_an_identifier(name: str) -> None:
    assert has_valid_names(direct_resolver())
    assert has_valid_names(direct_resolver(preloaded="author", batch=Batch(lambda *_: None, "user_id")))
    assert not has_valid_names(direct_resolver(parents=("parent", name)))
    assert not has_valid_names(direct_resolver(info=name))
    assert not has_valid_names(direct_resolver(preloaded=name))
    assert not has_valid_names(direct_resolver(batch=Batch(lambda *_: None, name)))
