"""The generator of systems refuses what it cannot generate, before it writes anything."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.scaffold.design import CannotGenerate
from runtime.scaffold.from_options import check_name, design_from_options
from runtime.scaffold.generate import FILES, filled, generate, restored_after_error
from runtime.scaffold.names import names_of
from tests.support.command_line import refused_in_a_line, run_here
from tests.support.store_engines import ROOT


@pytest.mark.parametrize(
    ("name", "type_name", "field"),
    [
        ("notes", "Note", "note"),
        ("shopping_lists", "ShoppingList", "shoppingList"),
        ("entries", "Entry", "entry"),
        ("matches", "Match", "match"),
    ],
)
def test_names_follow_from_the_name_of_the_system(name: str, type_name: str, field: str) -> None:
    (kind,) = names_of(design_from_options(name))["kinds"]

    assert (kind["Type"], kind["noun"]) == (type_name, field)


@pytest.mark.parametrize("name", ["note", "Notes", "my-notes", "", "_notes"])
def test_a_name_that_is_no_plural_is_refused(name: str) -> None:
    with pytest.raises(CannotGenerate, match="plural"):
        check_name(name)


@pytest.mark.parametrize("name", ["class", "pass", "imports", "lambdas"])
def test_a_name_that_needs_a_keyword_of_python_is_refused(name: str) -> None:
    with pytest.raises(CannotGenerate, match="keyword"):
        check_name(name)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("sightings", "datastore/keyspace/sightings.py already"),
        ("feeds", "datastore/keyspace/feeds already"),
        ("errors", "datastore/errors.py already"),
        ("users", "name User already"),
        ("watches", "name Watch already"),
        ("follows", "name follow already"),
        ("services", "attribute services already"),
        ("quakes", "ids such as QUAKE-1 already"),
    ],
)
def test_a_system_with_a_name_in_use_is_refused(name: str, taken: str) -> None:
    with pytest.raises(CannotGenerate, match=taken):
        generate(ROOT, design_from_options(name))


def test_a_table_that_is_declared_is_refused() -> None:
    with pytest.raises(CannotGenerate, match="table blip is declared"):
        generate(ROOT, replace(design_from_options("books"), table="blip"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"key": "Shop"}, "--key names an attribute in lower case, such as `shop` or `shop_id`, not 'Shop'"),
        ({"sort": ""}, "--sort names an attribute in lower case"),
        ({"key": "class"}, "--key cannot be 'class'"),
        ({"sort": "text"}, "--sort cannot be 'text'"),
        ({"key": "time", "sort": "sku"}, "`time` has a meaning of its own for --sort only"),
        ({"key": "shop", "sort": "user"}, "`user` has a meaning of its own for --key only"),
        ({"key": "shop", "sort": "shop"}, "two attributes, not 'shop' twice"),
        ({"key": "shop", "sort": "sku:number"}, "--sort: the type of sku must be text, not 'number'"),
    ],
)
def test_other_attributes_of_the_key_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(CannotGenerate, match=re.escape(reason)):
        design_from_options("books", **options)


def test_a_subscription_needs_an_owner() -> None:
    with pytest.raises(CannotGenerate, match="needs --key user"):
        design_from_options("books", "shop", live=True)


def test_options_of_a_new_table_are_refused_for_an_existing_one() -> None:
    for option in (["--ttl"], ["--ttl-days", "7"]):
        refused_in_a_line(run_here("new", "books", "--from-table", "novels", *option), 1, "omit the options")


def test_the_lifetime_of_the_items_is_stated_and_documented() -> None:
    texts = generate(ROOT, design_from_options("books", lifetime_days=7))

    assert "LIFETIME = timedelta(days=7)" in texts["datastore/books/books.py"]
    assert "| BOOK-2 | 7 days |" in texts["docs/datastore.md"]


def test_an_update_with_an_expected_version_is_documented() -> None:
    page = generate(ROOT, design_from_options("books", version=True))["docs/mutations.md"]

    table = page.partition("| mutation | `expectedVersion` is |")[2].partition("\n\n")[0]
    assert table.endswith("\n| `updateBook` | in the input | updates |")


@pytest.mark.parametrize("days", ["0", "soon", "36501"])
def test_a_lifetime_without_a_usable_number_of_days_is_refused(days: str) -> None:
    assert run_here("new", "books", "--ttl-days", days).returncode == 2


def test_a_template_keeps_and_repeats_lines() -> None:
    template = "#for items\n#if is_first\n{{name}} of {{all}}\n#else\n#if no\nnever\n#end\nthen {{name}}\n#end\n#end\n"
    items = [{"name": "one", "is_first": True}, {"name": "two", "is_first": False}]

    assert filled(template, {"all": "both", "no": False, "items": items}) == "one of both\nthen two\n"


def test_the_page_of_extensions_names_each_existing_file_to_which_a_system_is_added() -> None:
    system = design_from_options("books", lifetime_days=7, version=True, live=True)
    added = generate(ROOT, system).keys() - {path.format(module="books") for path in FILES.values()}

    section = (
        (ROOT / "docs" / "extending.md")
        .read_text()
        .partition("adds lines to these existing files")[2]
        .partition("\n## ")[0]
    )
    named = re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)

    assert sorted(named) == sorted(added)
    assert len(named) <= 6


def test_a_project_of_another_form_is_refused(tmp_path: Path) -> None:
    listed = tmp_path / "datastore" / "keyspace" / "__init__.py"
    listed.parent.mkdir(parents=True)
    listed.write_text("import os\n")

    with pytest.raises(CannotGenerate, match="another form"):
        generate(tmp_path, design_from_options("notes"))


def test_after_an_error_the_files_are_as_before(tmp_path: Path) -> None:
    changed, added = tmp_path / "changed.py", tmp_path / "notes" / "added.py"
    changed.write_text("before")

    def write_and_fail() -> None:
        with restored_after_error(tmp_path, ["changed.py", "notes/added.py"]):
            changed.write_text("after")
            added.parent.mkdir()
            added.write_text("new")
            raise OSError("The disk is full.")

    with pytest.raises(OSError, match="full"):
        write_and_fail()

    assert list(tmp_path.rglob("*")) == [changed]
    assert changed.read_text() == "before"
