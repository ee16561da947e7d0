"""What a refused update tells of the item as it is now: the fields of its type that need no further read."""

from inspect import isawaitable
from typing import Any

from graphql import (
    GraphQLField,
    GraphQLInterfaceType,
    GraphQLLeafType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLOutputType,
    GraphQLResolveInfo,
    get_named_type,
)
from strawberry.extensions.field_extension import AsyncExtensionResolver, FieldExtension
from strawberry.types import Info

from datastore.session.optimistic_locking import Outdated


class ConflictVersions(FieldExtension):
    """Adds `current` to the extensions of `Outdated`, as the field's own type would answer it to this caller."""

    async def resolve_async(self, next_: AsyncExtensionResolver, source: Any, info: Info, **kwargs: Any) -> Any:
        try:
            return await next_(source, info, **kwargs)
        except Outdated as outdated:
            raw = info._raw_info
            outdated.extensions["current"] = await _told(outdated.current, raw.return_type, raw)
            raise


async def _told(value: Any, kind: GraphQLOutputType, info: GraphQLResolveInfo[Any]) -> Any:
    """A value as an answer has it."""
    if isinstance(kind, GraphQLNonNull):
        return await _told(value, kind.of_type, info)
    if value is None:
        return None
    if isinstance(kind, GraphQLList):
        return [await _told(entry, kind.of_type, info) for entry in value]
    if isinstance(kind, GraphQLObjectType):
        fields = {name: field for name, field in kind.fields.items() if _is_at_hand(field)}
        return {name: await _field(value, field, info) for name, field in fields.items()}
    assert isinstance(kind, GraphQLLeafType), "Unions and interfaces are not at hand."
    return kind.serialize(value)


async def _field(source: Any, field: GraphQLField, info: GraphQLResolveInfo[Any]) -> Any:
    """By the field's own resolver, which tells each caller what they may see."""
    assert field.resolve is not None, "Strawberry gives each field a resolver."
    found = field.resolve(source, info)
    return await _told(await found if isawaitable(found) else found, field.type, info)


def _is_at_hand(field: GraphQLField) -> bool:
    """Whether it takes no arguments and asks the tables nothing: fields that do are marked with their patterns."""
    named = get_named_type(field.type)
    definition = field.extensions.get("strawberry-definition")
    asks = bool(definition is not None and definition.metadata.get("patterns"))
    return not (field.args or asks or isinstance(named, GraphQLInterfaceType))
