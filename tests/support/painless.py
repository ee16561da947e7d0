"""The part of the Painless language that scripts of updates need, run on a document.

Names, methods and operators that are not listed here are refused, as OpenSearch refuses what it cannot compile.
https://docs.opensearch.org/latest/api-reference/document-apis/update-document/
"""

import re
from collections.abc import Callable
from typing import Any

TOKENS = re.compile(r"\s*(?:('(?:[^'\\]|\\.)*')|(-?\d+)|([A-Za-z_]\w*)|(==|!=|<=|>=|\|\||&&|[-+<>=!(){};.,]))")
NAMES = {"ctx", "params"}
WORDS = {"true": True, "false": False, "null": None}


class ScriptError(Exception):
    """A script that does not compile, or that fails."""


def _compare_to(self: Any, other: Any) -> int:
    if not isinstance(self, str) or not isinstance(other, str):
        raise ScriptError("compareTo is of strings here")
    return (self > other) - (self < other)


METHODS: dict[str, tuple[type, Callable[..., Any]]] = {
    "compareTo": (str, _compare_to),
    "equals": (str, lambda self, other: self == other),
    "isEmpty": (str, lambda self: not self),
    "clear": (dict, lambda self: self.clear()),
    "putAll": (dict, lambda self, other: self.update(other)),
    "containsKey": (dict, lambda self, name: name in self),
}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: _number(a) < _number(b),
    ">": lambda a, b: _number(a) > _number(b),
    "<=": lambda a, b: _number(a) <= _number(b),
    ">=": lambda a, b: _number(a) >= _number(b),
}


def run_painless(source: str, ctx: dict[str, Any], params: dict[str, Any]) -> None:
    """Run a script, which may change `ctx`. Raises `ScriptError`."""
    _Script(_tokens(source), {"ctx": ctx, "params": params}).run()


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScriptError(f"{value!r} is no number")
    return value


def _tokens(source: str) -> list[str]:
    found: list[str] = []
    at = 0
    while source[at:].strip():
        match = TOKENS.match(source, at)
        if match is None:
            raise ScriptError(f"unexpected: {source[at:]!r}")
        found.append(match.group().strip())
        at = match.end()
    return found


class _Script:
    """An interpreter that runs the script while parsing it. It only parses branches that are not taken."""

    def __init__(self, tokens: list[str], names: dict[str, Any]) -> None:
        self._tokens = tokens
        self._at = 0
        self._names = names

    def run(self) -> None:
        while self._at < len(self._tokens):
            self._statement(does=True)

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, *expected: str) -> str:
        token = self._peek()
        if not token or (expected and token not in expected):
            raise ScriptError(f"unexpected {token!r}, expected {' or '.join(expected) or 'more'}")
        self._at += 1
        return token

    def _statement(self, *, does: bool) -> None:
        if self._peek() == "if":
            self._take()
            self._take("(")
            holds = self._either(does=does)
            if does and not isinstance(holds, bool):
                raise ScriptError("a condition must be a boolean")
            self._take(")")
            self._block(does=does and holds is True)
            if self._peek() == "else":
                self._take()
                self._block(does=does and holds is False)
            return
        self._expression_statement(does=does)
        if self._peek() != "}":
            self._take(";")

    def _block(self, *, does: bool) -> None:
        self._take("{")
        while self._peek() != "}":
            self._statement(does=does)
        self._take("}")

    def _expression_statement(self, *, does: bool) -> None:
        """Run an assignment to a field, or a call."""
        begin = self._at
        _, called = self._path(does=does)
        if self._peek() != "=":
            if not called:
                raise ScriptError("not a statement")
            return
        end = self._at
        self._take("=")
        new = self._either(does=does)
        if called or end - begin < 3:
            raise ScriptError(f"{self._tokens[end - 1]} cannot be assigned to")
        if does:
            self._owner(begin, end - 2)[self._tokens[end - 1]] = new

    def _owner(self, begin: int, end: int) -> dict[str, Any]:
        owner: Any = self._names[self._tokens[begin]]
        for token in self._tokens[begin + 1 : end]:
            owner = owner if token == "." else _field(owner, token)
        if not isinstance(owner, dict):
            raise ScriptError("only fields of maps can be assigned to")
        return owner

    def _either(self, *, does: bool) -> Any:
        value = self._both(does=does)
        while self._peek() == "||":
            self._take()
            right = self._both(does=does and value is False)
            value = value or right
        return value

    def _both(self, *, does: bool) -> Any:
        value = self._compared(does=does)
        while self._peek() == "&&":
            self._take()
            right = self._compared(does=does and value is True)
            value = value and right
        return value

    def _compared(self, *, does: bool) -> Any:
        if self._peek() == "!":
            self._take()
            return not self._compared(does=does)
        value = self._value(does=does)
        if self._peek() in OPERATORS:
            operator = OPERATORS[self._take()]
            right = self._value(does=does)
            value = operator(value, right) if does else None
        return value

    def _value(self, *, does: bool) -> Any:
        token = self._peek()
        if token.startswith("'"):
            return self._take()[1:-1]
        if re.fullmatch(r"-?\d+", token):
            return int(self._take())
        if token in WORDS:
            return WORDS[self._take()]
        if token == "(":
            self._take()
            value = self._either(does=does)
            self._take(")")
            return value
        return self._path(does=does)[0]

    def _path(self, *, does: bool) -> tuple[Any, bool]:
        """Return the value of `name.field.method(…)`, and whether it ends with a call."""
        name = self._take()
        if name not in NAMES:
            raise ScriptError(f"{name!r} is not known")
        value, called = self._names[name], False
        while self._peek() == ".":
            self._take()
            member = self._take()
            called = self._peek() == "("
            if called:
                value = self._call(value, member, does=does)
            elif does and self._peek() != "=":
                value = _field(value, member)
        return value, called

    def _call(self, owner: Any, name: str, *, does: bool) -> Any:
        if name not in METHODS:
            raise ScriptError(f"there is no method {name!r}")
        self._take("(")
        arguments = []
        while self._peek() != ")":
            arguments.append(self._either(does=does))
            if self._peek() != ")":
                self._take(",")
        self._take(")")
        if not does:
            return None
        of, method = METHODS[name]
        if not isinstance(owner, of):
            raise ScriptError(f"{name} is called on {owner!r}")
        return method(owner, *arguments)


def _field(owner: Any, name: str) -> Any:
    if not isinstance(owner, dict):
        raise ScriptError(f"{name!r} is asked of {owner!r}")
    return owner.get(name)
