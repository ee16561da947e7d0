"""Fields with the same response name are refused as by graphql-core's rule, but in linear time."""

from random import Random

import pytest
from graphql import build_schema, parse, validate
from graphql.validation import (
    NoFragmentCyclesRule,
    NoUnusedFragmentsRule,
    OverlappingFieldsCanBeMergedRule,
    specified_rules,
)

import schema as api
from server.documents.limits import DocumentLimits
from server.documents.overlapping_fields import OverlapCheck, TooComplex
from server.documents.validation import validation_errors
from tests.support import random_documents

SCHEMA = build_schema(random_documents.SCHEMA)
UNBOUNDED = 10**9


def conflicts(text: str) -> list[str]:
    return [error.message for error in OverlapCheck(SCHEMA, parse(text), UNBOUNDED).conflicts()]


@pytest.mark.proof
def test_the_same_documents_are_refused_as_by_graphql_core() -> None:
    refused = accepted = 0
    for seed in range(300):
        text = random_documents.document(Random(seed))
        document = parse(text)
        if validate(SCHEMA, document, [NoUnusedFragmentsRule, NoFragmentCyclesRule]):
            continue  # graphql-core's rule also examines unused fragments
        expected = validate(SCHEMA, document, [OverlappingFieldsCanBeMergedRule])

        assert bool(conflicts(text)) == bool(expected), text
        refused, accepted = refused + bool(expected), accepted + (not expected)
    assert min(refused, accepted) > 50


@pytest.mark.proof
def test_the_same_whole_documents_are_valid_as_in_graphql_core() -> None:
    valid = 0
    for seed in range(60):
        rng = Random(seed)
        text = random_documents.document(rng)
        if seed % 3 == 0:
            # Add another error: in a variable, a directive, a field or an argument.
            text = text.replace("id", rng.choice(["id(a: $b)", "id @no", "id @skip(if: 1)", "ix", "id(no: 2)"]), 1)
        document = parse(text)
        expected = validate(SCHEMA, document, specified_rules)

        found = validation_errors(SCHEMA, document, text, DocumentLimits(merging=UNBOUNDED), suggesting=True)

        assert bool(found) == bool(expected), text
        valid += not expected
    assert 10 < valid < 50


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{cat {name: id name}}", "'id' and 'name' are different fields"),
        ("{cat {self(at: 1) {id} self(at: 2) {id}}}", "they have differing arguments"),
        ("{cat {self(at: 1) {id} self {id}}}", "they have differing arguments"),
        (
            "{pet {... on Cat {x: name} ... on Dog {x: name}}}",
            "they return conflicting types 'String!' and 'String'",
        ),
        ("{pet {... on Cat {lives} ... on Dog {lives}}}", "they return conflicting types 'Int' and 'String'"),
        ("{cat {...A ...B}} fragment A on Cat {x: id} fragment B on Cat {x: name}", "are different fields"),
        ("{a: cat {id} a: cat {id: name}}", "Fields 'id' conflict"),
        (
            "{pet {... on Cat {box {x: size}} ... on Dog {box {x: name}}}}",
            "they return conflicting types",
        ),
    ],
)
def test_a_conflict_is_reported_with_its_reason(text: str, message: str) -> None:
    (error,) = conflicts(text)

    assert message in error
    assert "Use different aliases" in error


@pytest.mark.parametrize(
    "text",
    [
        "{cat {self(in: {a: 1, b: [1]}, at: 1) {id} self(at: 1, in: {b: [1], a: 1}) {id}}}",
        "{pet {... on Cat {x: lives} ... on Dog {y: lives}}}",
        "{pet {... on Cat {box: other {id}} ... on Dog {box: other {id}}}}",
        "{cat {...A ...A}} fragment A on Cat {id self {id}}",
    ],
)
def test_equal_fields_are_merged(text: str) -> None:
    assert conflicts(text) == []


@pytest.mark.parametrize("part", ["me {role} ", "... {me {role}} ", "__typename ", "... on Query {me {...F}} "])
def test_the_steps_grow_with_the_document(part: str) -> None:
    end = "} fragment F on Me {role userId}" if "F" in part else "}"

    def steps(times: int) -> int:
        merging = OverlapCheck(api.build()._schema, parse("{" + part * times + end), UNBOUNDED)
        assert list(merging.conflicts()) == []
        return merging.steps

    assert steps(400) <= 4.1 * steps(100)
    assert steps(400) <= 4 * 400 + 10


def test_the_comparison_stops_at_its_limit_of_steps() -> None:
    fields = " ".join(f"f{number}: name" for number in range(100))
    parents = " ".join(f"a{number}: cat {{...F n{number}: id}}" for number in range(100))
    merging = OverlapCheck(SCHEMA, parse(f"{{{parents}}} fragment F on Cat {{{fields}}}"), 4_000)

    with pytest.raises(TooComplex):
        list(merging.conflicts())
    assert merging.steps < 4_200
