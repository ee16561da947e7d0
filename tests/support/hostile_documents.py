"""Hostile documents: every known shape that is slow to check, at a size in bytes."""

from collections.abc import Callable


def shapes(size: int) -> dict[str, str]:
    """Return a document of about `size` bytes for each shape. Most are refused, some are valid."""
    return {name: make(size) for name, make in _SHAPES.items()}


def _repeated(part: Callable[[int], str], size: int, start: str = "{", end: str = "}") -> str:
    """Return the text with as many of the parts 0, 1, 2 … as fit."""
    parts, length, number = [], len(start) + len(end), 0
    while length + len(part(number)) <= size:
        parts.append(part(number))
        length += len(parts[-1])
        number += 1
    return start + "".join(parts) + end


def _nested(opened: str, inner: str, closed: str, size: int, deepest: int = 10_000) -> str:
    depth = min(deepest, (size - len(inner)) // (len(opened) + len(closed)))
    return opened * depth + inner + closed * depth


def _fragments(spreads: int, size: int, last: str = "__typename") -> str:
    """Return fragments that each spread the next one `spreads` times: exponentially many fields without memoization."""

    def part(number: int) -> str:
        return f"fragment f{number} on Query{{{f'...f{number + 1} ' * spreads}}}"

    text = _repeated(part, size - 40, "{...f0}", "")
    return text + f"fragment f{text.count('fragment')} on Query{{{last}}}"


def _doubling(size: int) -> str:
    """Return fragments whose fields double at each level: the execution has 2^n fields."""

    def part(number: int) -> str:
        beneath = f"{{nodes{{author{{...f{number + 1}}}}}}}"
        return f"fragment f{number} on User{{a:posts{beneath}b:posts{beneath}}}"

    text = _repeated(part, size - 80, '{user(id:"a"){...f0}}', "")
    return text + f"fragment f{text.count('fragment')} on User{{name}}"


def _shared(size: int) -> str:
    """Return fields that each spread the same large fragment and have a field of their own."""
    fragment = _repeated(lambda number: f"f{number}:role ", size // 2, "fragment F on Me{", "}")
    return _repeated(lambda number: f"m{number}:me{{...F n{number}:role}}", size // 2) + fragment


def _cycle(size: int) -> str:
    text = _repeated(lambda number: f"fragment f{number} on Query{{...f{number + 1}}}", size - 40, "{...f0}", "")
    return text + f"fragment f{text.count('fragment')} on Query{{...f0}}"


def _variables(size: int) -> str:
    used = _repeated(lambda number: f"a{number}:earthquake(id:$v{number}){{place}}", size * 2 // 3)
    return _repeated(lambda number: f"$v{number}:ID!", used.count("$") * 8, "query(", ")") + used


def _operations(size: int) -> str:
    """Return operations that all spread the same fragments, which use variables."""
    fragments = _repeated(
        lambda number: f"fragment f{number} on Query{{...f{number + 1} a{number}:node(id:$v){{id}}}}", size // 2, "", ""
    )
    last = f"fragment f{fragments.count('fragment')} on Query{{__typename}}"
    return _repeated(lambda number: f"query q{number}($v:ID!){{...f0}}", size // 2, "", "") + fragments + last


def _kinds(size: int) -> str:
    """Return one level of `node` with repeated fragments of all its types."""
    kinds = ("Post", "User", "Photo", "Person", "Face", "Match", "Team", "League", "Earthquake", "Sighting", "Comment")
    return _repeated(lambda number: f"...on {kinds[number % 11]}{{id}}", size, '{node(id:"a"){id ', "}}")


def _spreads(size: int) -> str:
    """Return a document within the limits: ten fragments of 20 fields, spread as often as fits."""
    fields = " ".join(("role", "userId", "email", "__typename") * 5)
    fragments = "".join(f"fragment F{number} on Me{{{fields}}}" for number in range(max(1, min(10, size // 400))))
    places = _repeated(lambda number: f"...on Query{{me{{...F{number % 10}}}}}", max(60, size - len(fragments)))
    for number in range(fragments.count("fragment"), 10):
        places = places.replace(f"...F{number}}}", "...F0}")
    return places + fragments


def _few_operations(size: int) -> str:
    text = _operations(size)
    while text.count("query") > 10:
        text = text[text.index("query", 1) :]
    return text


def _few_variables(size: int) -> str:
    used = _repeated(lambda number: f"n{number}:node(id:$v{number}){{id}}", min(size * 2 // 3, 1_000))
    count = used.count("$")
    return "query(" + "".join(f"$v{number}:ID!" for number in range(count)) + ")" + used


_SHAPES: dict[str, Callable[[int], str]] = {
    "a field again": lambda size: _repeated(lambda _: "__typename ", size),
    "an object again": lambda size: _repeated(lambda _: "me{role} ", size),
    "an object again, 100 deep": lambda size: _repeated(lambda _: "me{user{posts{nodes{author{name}}}}}", size),
    "one letter again": lambda size: _repeated(lambda _: "a ", size),
    "aliases": lambda size: _repeated(lambda number: f"a{number}:__typename ", size),
    "aliases of lists": lambda size: _repeated(lambda number: f"a{number}:photos{{nodes{{imageId}}}}", size),
    "one alias of different fields": lambda size: _repeated(lambda number: f"a:f{number} ", size),
    "differing arguments": lambda size: _repeated(lambda number: f'earthquake(id:"{number}"){{place}}', size),
    "inline fragments": lambda size: _repeated(lambda _: "...{me{role}} ", size),
    "inline fragments in one another": lambda size: "{" + _nested("...{", "__typename", "}", size - 2, 180) + "}",
    "fragments that spread two": lambda size: _fragments(2, size),
    "fragments that spread ten": lambda size: _fragments(10, size),
    "fragments with twice the fields": _doubling,
    "a chain of fragments": lambda size: _fragments(1, size),
    "a cycle of fragments": _cycle,
    "a fragment spread everywhere": _shared,
    "unused fragments": lambda size: _repeated(
        lambda number: f"fragment f{number} on Query{{__typename}}", size, "{__typename}", ""
    ),
    "fragments of unknown types": lambda size: _repeated(
        lambda number: f"...on EarthquakeConnecti{number:03}{{id}}", size
    ),
    "unknown spreads": lambda size: _repeated(lambda number: f"...f{number} ", size),
    "all types of a node": _kinds,
    "unknown fields": lambda size: _repeated(lambda number: f"earthquakesofx{number:03}ab ", size),
    "unknown arguments": lambda size: _repeated(
        lambda number: f"firstx{number}:1 ", size, "{earthquakes(", "){nodes{id}}}"
    ),
    "unknown input fields": lambda size: _repeated(
        lambda number: f"descriptio{number}:1 ", size, "mutation{reportSighting(input:{", "}){area}}"
    ),
    "variables": _variables,
    "variables that are not used": lambda size: _repeated(
        lambda number: f"$v{number}:Int ", size, "query(", "){areas}"
    ),
    "variables of unknown types": lambda size: _repeated(
        lambda number: f"$v{number}:BoundingBo{number:03}", size, "query(", "){areas}"
    ),
    "variables that are not defined": lambda size: _repeated(
        lambda number: f"a{number}:node(id:$v{number}){{id}}", size
    ),
    "operations": lambda size: _repeated(lambda number: f"query q{number}{{__typename}}", size, "", ""),
    "operations on the same fragments": _operations,
    "directives": lambda size: _repeated(lambda _: "@a ", size, "{__typename ", "}"),
    "directives that count": lambda size: _repeated(lambda number: f"a{number}:areas@skip(if:true) ", size),
    "incremental delivery": lambda size: _repeated(lambda number: f'...@defer(label:"{number}"){{areas}} ', size),
    "a long list": lambda size: _repeated(lambda _: "1 ", size, "{nodes(ids:[", "]){id}}"),
    "a wrong list": lambda size: _repeated(lambda _: "1.5 ", size, "{nodes(ids:[", "]){id}}"),
    "lists in one another": lambda size: "{nodes(ids:" + _nested("[", "", "]", size - 20) + "){id}}",
    "lists, as deep as is parsed": lambda size: "{nodes(ids:" + _nested("[", "", "]", size - 20, 190) + "){id}}",
    "objects in one another": lambda size: "{nodes(ids:" + _nested("{a:", "1", "}", size - 20, 190) + "){id}}",
    "fields in one another": lambda size: _nested("{me", "{role}", "}", size),
    "fields, as deep as is parsed": lambda size: _nested("{me", "{role}", "}", size, 190),
    "introspection, deep": lambda size: "{__schema{types" + _nested("{fields{type", "{name}", "}}", size, 40) + "}}",
    "introspection, wide": lambda size: _repeated(
        lambda number: f"a{number}:types{{fields{{args{{name}}}}}}", size, "{__schema{", "}}"
    ),
    "as many fields as may be": lambda size: _repeated(lambda _: "role ", min(size, 2_450), "{me{", "}}"),
    "as many spreads as may be": lambda size: _spreads(min(size, 2_800)),
    "as many operations as may be": lambda size: _few_operations(min(size, 3_000)),
    "a variable again, for each operation": lambda size: _repeated(
        lambda _: "$v ",
        min(size, 1_500),
        "".join(f"query q{number}($v:ID!){{...F}}" for number in range(10)) + "fragment F on Query{nodes(ids:[",
        "]){id}}",
    ),
    "as many variables as may be": lambda size: _few_variables(min(size, 5_500)),
    "a long name": lambda size: "{" + "x" * (size - 2) + "}",
    "long names": lambda size: _repeated(lambda number: "x" * 60 + f"{number} ", size),
    "a long string": lambda size: '{node(id:"' + "x" * (size - 20) + '"){id}}',
    "a string of escapes": lambda size: '{node(id:"' + r"\n" * (size // 2 - 10) + '"){id}}',
    "a string of code points": lambda size: '{node(id:"' + r"\u0041" * (size // 6 - 10) + '"){id}}',
    "a block of lines": lambda size: '{node(id:"""' + "x\n" * (size // 2 - 10) + '"""){id}}',
    "a block of quotes": lambda size: '{node(id:"""' + '\\"""' * (size // 4 - 10) + '"""){id}}',
    "blocks that no quotes end": lambda size: ('\n\\"""' * (size // 5))[: size - 1] + "\\",
    "blocks of backslashes": lambda size: "{node(id:" + '"""\\\\"""x"""' * (size // 11 - 2) + "){id}}",
    "a block of backslashes": lambda size: '{node(id:"""' + "\\" * (size - 20) + '"""){id}}',
    "a block of spaces": lambda size: '{node(id:"""' + "  " * (size // 2 - 10) + '"""){id}}',
    "a long number": lambda size: "{node(id:" + "1" * (size - 20) + "){id}}",
    "a comment": lambda size: "{__typename}#" + "x" * (size - 20),
    "comments": lambda size: _repeated(lambda _: "#\n", size, "{", "__typename}"),
    "commas": lambda size: "{__typename" + "," * (size - 20) + "}",
    "lines": lambda size: "{" + "\n" * (size - 20) + "__typename}",
    "lines, and errors after them": lambda size: "{" + "\n" * (size - 300) + "nope " * 50 + "}",
    "other alphabets": lambda size: '{node(id:"' + "é" * (size // 2 - 20) + '"){id}}',
    "what is no token": lambda size: "{" + "é " * (size // 3) + "}",
    "quotes": lambda size: '"' * size,
    "open braces": lambda size: "{" * size,
}
