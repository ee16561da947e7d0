"""The schema of the federation subgraph, and the fields that it adds to the served schema."""

import re

import pytest
from graphql import (
    GraphQLSchema,
    ObjectTypeDefinitionNode,
    OperationType,
    build_schema,
    lexicographic_sort_schema,
    parse,
    print_ast,
    print_type,
)

import schema as api
from datastore.model.identity import Identity, Role
from server.documents.document_cache import DocumentRejected, Documents
from server.documents.settings import DocumentSettings, document_settings

SUBGRAPH = "{ _service { sdl } }"
# The types with a global id, and their second keys.
SECOND_KEYS = {
    "ActiveMatch": "matchId",
    "Comment": "postId commentId",
    "Device": "userId",
    "DisplayState": "matchId teamId",
    "Earthquake": "eventId",
    "Face": "faceId imageId",
    "League": "leagueId",
    "LiveActivity": "matchId userId deviceId",
    "Livestream": "livestreamId",
    "Match": "matchId",
    "MatchFollow": "matchId userId",
    "Notification": None,
    "Person": "personId",
    "Photo": None,
    "PhotoUser": "userId",
    "Post": "postId",
    "Sighting": None,
    "Team": "teamId",
    "TeamSeason": "seasonId teamId",
    "User": "userId",
    "UserProfile": "userId",
    "Watch": "userId area category watchId",
}


def directives_of_types() -> dict[str, list[str]]:
    return {
        node.name.value: [print_ast(directive) for directive in node.directives or ()]
        for node in parse(api.federation_sdl()).definitions
        if isinstance(node, ObjectTypeDefinitionNode)
    }


def test_types_with_a_global_id_have_keys() -> None:
    keys = {name: ["id", *([second] if second else [])] for name, second in SECOND_KEYS.items()}

    assert {name: found for name, found in directives_of_types().items() if "@key" in str(found)} == {
        name: [f'@key(fields: "{fields}")' for fields in of_type] for name, of_type in keys.items()
    }


def test_the_types_of_lists_are_shareable() -> None:
    shareable = {name for name, found in directives_of_types().items() if found == ["@shareable"]}

    assert "PageInfo" in shareable
    schema = api.build()._schema
    connections = {name for name, kind in schema.type_map.items() if "pageInfo" in getattr(kind, "fields", ())}
    assert shareable == {"PageInfo"} | connections | {name for name in schema.type_map if name.endswith("Edge")}


def test_the_subgraph_has_the_types_and_descriptions_of_the_schema() -> None:
    own = re.sub(r" @(key\([^)]*\)|shareable)", "", api.federation_sdl()).partition("\n\n")[2]

    assert "accessPattern" not in own
    assert printed_types(build_schema(own)) == printed_types(api.build()._schema)


def printed_types(schema: GraphQLSchema) -> dict[str, str]:
    return {name: print_type(kind) for name, kind in lexicographic_sort_schema(schema).type_map.items()}


def test_federation_adds_two_fields_and_nothing_else() -> None:
    schema, own = api.build(federation=True)._schema, api.build()._schema

    added = {"_Any", "_Entity", "_Service"}

    assert schema.type_map.keys() - own.type_map.keys() == added
    fields, own_fields = (each.get_root_type(OperationType.QUERY).fields for each in (schema, own))  # type: ignore[union-attr]
    assert fields.keys() - own_fields.keys() == {"_service", "_entities"}
    changed = {name for name in own.type_map if print_type(schema.type_map[name]) != print_type(own.type_map[name])}
    assert changed == {"Query"}


def test_federation_is_off_by_default() -> None:
    assert not document_settings({}).federation
    assert document_settings({"GATEWAY_FEDERATION": "on"}) == DocumentSettings(federation=True)
    with pytest.raises(ValueError, match="GATEWAY_FEDERATION must be off or on, not 'yes'"):
        document_settings({"GATEWAY_FEDERATION": "yes"})
    with pytest.raises(DocumentRejected, match="Cannot query field '_service'"):
        Documents(api.build()).prepare(SUBGRAPH)


def test_callers_who_may_not_introspect_do_not_receive_the_subgraph() -> None:
    documents = Documents(api.build(federation=True), introspection=False)
    hidden = documents.prepare("{ areas ...F } fragment F on Query { it: _service { sdl } }")

    with pytest.raises(DocumentRejected, match="only admins may introspect"):
        documents.check_introspection(hidden, Identity("ada", Role.USER))
    documents.check_introspection(hidden, Identity("root", Role.ADMIN))
    documents.check_introspection(documents.prepare("{ areas }"), None)
