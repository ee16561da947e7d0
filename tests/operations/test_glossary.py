"""The glossary defines each term once and names existing code."""

import ast
import re

from tests.support.store_engines import ROOT

PRODUCT = ("runtime", "server", "jit", "schema", "resolvers", "datastore", "pipelines")
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| `([^`|]+)` \|$", re.MULTILINE)


def rows() -> list[tuple[str, str, str]]:
    return ROW.findall((ROOT / "docs" / "glossary.md").read_text())


def test_terms_are_in_alphabetical_order_and_defined_once() -> None:
    terms = [term for term, _, _ in rows()]

    assert len(terms) >= 50
    assert terms == sorted(set(terms), key=str.lower)


def test_a_definition_is_one_or_two_sentences() -> None:
    assert [term for term, meaning, _ in rows() if not 1 <= len(re.findall(r"\.(?: |$)", meaning)) <= 2] == []


def test_each_term_names_a_class_or_a_module() -> None:
    classes = {
        node.name
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }

    assert [code for _, _, code in rows() if code not in classes and not (ROOT / code).is_file()] == []
