"""Test modules all of whose tests start DynamoDB, or are proofs. `make test-fast` does not import them.

The source of a module decides: to collect all modules would take half of the time of `make test-fast`.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.support.markers import FIXTURES, PROOFS

TESTS = Path(__file__).parents[1]
# By the name of a fixture, the fixtures that it requests. A name may have several definitions.
Fixtures = Mapping[str, list[set[str]]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_slow(path: Path) -> bool:
    """Return whether a module is a proof, or every test of it requests DynamoDB, directly or through its fixtures."""
    if path.is_relative_to(PROOFS):
        return True
    functions = list(_functions(path))
    own = _fixtures_in(functions)
    tests = [function for function in functions if function.name.startswith("test_")]
    return bool(tests) and all(any(_starts_engine(name, own) for name in _parameters(test)) for test in tests)


def _starts_engine(name: str, own: Fixtures, seen: frozenset[str] = frozenset()) -> bool:
    """Return whether all fixtures of this name start DynamoDB. Those of the module replace the shared ones."""
    if name in FIXTURES["engine"]:
        return True
    definitions = own.get(name) or _shared_fixtures().get(name, [])
    seen |= {name}
    return bool(definitions) and all(
        any(_starts_engine(requested, own, seen) for requested in definition - seen) for definition in definitions
    )


@cache
def _shared_fixtures() -> Fixtures:
    paths = [TESTS / "conftest.py", *(TESTS / "support").rglob("*.py")]
    return _fixtures_in([function for path in paths for function in _functions(path)])


def _fixtures_in(functions: list[Function]) -> Fixtures:
    found: dict[str, list[set[str]]] = {}
    for function in functions:
        if any("fixture" in ast.unparse(decorator) for decorator in function.decorator_list):
            found.setdefault(function.name, []).append(_parameters(function))
    return found


def _functions(path: Path) -> Iterator[Function]:
    """Yield the functions of a module and the methods of its classes. Nested functions are no tests."""
    for node in ast.parse(path.read_text()).body:
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, Function):
                yield each


def _parameters(function: Function) -> set[str]:
    return {parameter.arg for parameter in (*function.args.args, *function.args.kwonlyargs)}
