"""The texts for which the templates have names: those of a system, of its kinds of items, and of their lists."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from runtime.scaffold.design import TYPES, ItemKind, ItemList, KeyPart, SystemDesign, camel, capital, singular, words

Names = dict[str, Any]


def names_of(system: SystemDesign) -> Names:
    """Return the texts of a system, with lists of the texts of its kinds of items."""
    prefix, numbers = prefix_of(system.name), count(1)
    kinds = [_names_of_kind(system, kind, prefix, numbers) for kind in system.kinds]
    contents = f"{words(system.name)} of users" if system.kinds[0].owner else words(system.name)
    parts = [part for kind in system.kinds for part in kind.parameters]
    parts += [part for kind in system.kinds for each in kind.lists for part in each.parameters]
    arguments = {part.argument: part for part in parts if part.role != "owner"}
    return {
        "module": system.name,
        "table": system.table,
        "TABLE": system.name.upper(),
        "partition": repr(system.partition),
        "sort": system.sort and repr(system.sort),
        "indexes": ", ".join(system.indexes),
        "ttl": system.ttl and repr(system.ttl),
        "lifetime_days": str(system.lifetime_days),
        "some_never_expire": system.some_never_expire,
        "has_stream": system.has_stream,
        "item_bytes": system.item_bytes and str(system.item_bytes),
        "writes": system.writes,
        "version": system.version,
        "live": system.live,
        "kinds": kinds,
        "has_lists": any(kind.lists for kind in system.kinds),
        "Types": ", ".join(kind["Type"] for kind in kinds),
        "nodes": "".join(f"{kind['Type']}," for kind in kinds),
        "System": capital(singular(system.name)),
        "Store": capital(system.name),
        "contents": contents,
        "Contents": contents.capitalize(),
        "The_contents": f"The {words(system.name)}",
        "ids": f"{prefix}-1 … {prefix}-{next(numbers) - 1}",
        "and_live": f" and the subscription {prefix}-S1" if system.live else "",
        "partition_name": system.partition,
        "arguments": [
            {"argument": name, "argument_type": part.schema_type, "argument_description": repr(part.description)}
            for name, part in sorted(arguments.items())
        ],
        "caller": kinds[0]["caller"],
    }


def prefix_of(name: str) -> str:
    """Return the text with which the ids of a system's access patterns begin."""
    return singular(name).upper().replace("_", "")


def with_article(noun: str) -> str:
    return f"{'an' if re.match('(?!us|uni)[aeiou]', noun) else 'a'} {noun}"


def _names_of_kind(system: SystemDesign, kind: ItemKind, prefix: str, numbers: Iterator[int]) -> Names:
    parts, owner, noun = kind.parameters, kind.owner, camel(kind.name)
    id = f"{prefix}-{next(numbers)}"
    lists = [_names_of_list(system, kind, each, f"{prefix}-{next(numbers)}") for each in kind.lists]
    partial = [each["list_field"] for each in lists if each["is_partial"]]
    a_words, nouns = with_article(words(kind.name)), words(kind.plural)
    caller = 'user="ada"' if owner else 'user="poller", role=Role.SYSTEM'
    names = {
        "snake": kind.name,
        "CONSTANT": kind.name.upper(),
        "Type": capital(kind.name),
        "noun": noun,
        "words": words(kind.name),
        "a_words": a_words,
        "A_words": a_words.capitalize(),
        "a_snake": a_words.replace(" ", "_"),
        "nouns": nouns,
        "The_nouns": f"The {nouns}",
        "of_owner": " of a user" if owner else "",
        "of_caller": " of the caller" if owner else "",
        "id": id,
        "live_id": f"{prefix}-S1",
        "lists": lists,
        "is_owned": owner is not None,
        "is_new_id": kind.has_new_id,
        "who": "Who.USER" if owner else "Who.SYSTEM",
        "also": owner is None,
        "caller": caller,
        "other_caller": 'user="eve"' if owner else caller,
        "node_owner": owner and owner.name,
        "owner": ", owner=key[0]" if owner else "",
        "as": "" if owner else "# as system\n",
        "key_words": "id" if kind.has_new_id else "key",
        "key_parameters": ", ".join(f"{part.name}: str" for part in parts),
        "key_arguments": ", ".join(part.name for part in parts),
        "key_parts": ", ".join(_tuple(map(_source, each)) for each in kind.key),
        "parts": _tuple(f'"{part.name}"' for part in parts),
        "field_parameters": ", ".join(f"{part.name}: {part.argument}" for part in parts),
        "checked": _tuple(part.check for part in parts),
        "point_fields": ", ".join(f'"{name}"' for name in (noun, *partial, "node", "nodes")),
        "point_example": ", ".join(f'{part.api_name}: "{part.example}"' for part in parts),
        "fields": [{"declaration": text} for text in _record_fields(system, kind)],
        "shown": [{"shown": text} for text in _schema_fields(kind)],
    }
    return names | (_names_of_writes(kind, prefix, numbers, names) if system.writes else _names_of_reads(kind))


def _names_of_reads(kind: ItemKind) -> Names:
    """Return the texts for tests and examples of a kind that is only read."""
    shown = {part.name: part.example for part in kind.parameters}
    shown |= {each.field: kind.example.get(each.name, TYPES[each.type].shown) for each in kind.attributes}
    fields = [camel(name) for name in shown]
    return {
        "selection": " ".join(fields),
        "lines": "\n    ".join(fields),
        "list_lines": "\n      ".join(fields),
        "response": repr(dict(zip(fields, shown.values(), strict=True))),
        "example": repr({each.name: TYPES[each.type].example for each in kind.attributes} | kind.example),
    }


def _names_of_writes(kind: ItemKind, prefix: str, numbers: Iterator[int], names: Names) -> Names:
    """Return the texts for the mutations of a kind, and for their tests and examples."""
    parts, last = kind.parameters, kind.parameters[-1]
    given = [part for part in parts if part.role == "given"]
    written = [part for part in parts if part.role != "owner"]
    checks = ["caller.user_id" if part.role == "owner" else part.check for part in parts]
    values = {"owner": "caller.user_id", "new id": "id"}
    new = [values.get(part.role) or f'values["{part.name}"]' for part in parts]
    new += ['values["text"]', "context.requested_at"]
    new += ["expires_at=context.requested_at + LIFETIME"] if any(each.type == "ttl" for each in kind.attributes) else []
    ids = {f"{verb}_id": f"{prefix}-{next(numbers)}" for verb in ("create", "update", "delete")}
    list_field = names["lists"][0]["list_field"]

    def arguments(of: Iterable[KeyPart], value: str) -> str:
        """Return arguments with the value for the last part of the key."""
        texts = {part: f'"{part.example}"' for part in of} | ({last: value} if last in of else {})
        return ", ".join(f"{part.api_name}: {text}" for part, text in texts.items())

    return ids | {
        "last": last.api_name,
        "last_type": last.schema_type.removeprefix("strawberry.").replace("str", "String") + "!",
        "given": [
            {"given": part.name, "given_type": part.schema_type, "given_description": part.description}
            for part in given
        ],
        "caller_is": "caller = " if kind.owner else "",
        "new_values": ", ".join(new),
        "write_parameters": ", ".join(f"{part.name}: {part.argument}" for part in written),
        "write_checked": _tuple(checks),
        "delete_checked": ", ".join(checks),
        "conflict": "" if kind.has_new_id else " CONFLICT if there is one with its key.",
        "write_example": arguments(written, f'"<{kind.name}>"'),
        "point_example": arguments(parts, f'"<{kind.name}>"'),
        "write_variables": arguments(written, "$id"),
        "read_variables": arguments(parts, "$id"),
        "first_input": _followed(arguments(given, '"one"')),
        "second_input": _followed(arguments(given, '"two"')),
        "input_of_text": _followed(arguments(given, "$text")),
        "partition_example": parts[0].example,
        "lines": "text\n    createdAt",
        "list_lines": f"{last.api_name}\n      text\n      createdAt",
        "list_of_ada": f"{list_field}({names['lists'][0]['list_arguments']}first: 1)",
        "demo_list": f"{list_field}({names['lists'][0]['demo_arguments']}first: 1)",
    }


def _names_of_list(system: SystemDesign, kind: ItemKind, listed: ItemList, id: str) -> Names:
    parts = listed.parameters
    of = " and ".join(with_article(_thing(part)) for part in parts)
    text = f"the {words(kind.plural)} of {of}" if of else f"all {words(kind.plural)}"
    text += ", newest first" if kind.has_new_id else f", in the order of {listed.index or 'their keys'}"
    query = f"Query {system.table}.{listed.index}" if listed.index else f"Query {system.table}"
    key = f"#{listed.attribute} = :partition"
    key += f" AND begins_with(#{listed.sort}, :prefix)" if listed.prefix else ""
    arguments = _followed(", ".join(f'{part.api_name}: "{part.example}"' for part in parts))
    bound = [f'"{part.api_name}":<{part.api_name}>' for part in parts]
    of_what = "_AND_".join(_thing(part).replace(" ", "_") for part in parts).upper()
    return {
        "list": listed.name,
        "list_field": camel(listed.name),
        "List": capital(listed.name),
        "LIST": listed.name.upper() if listed.index else f"{listed.name.upper()}_OF_{of_what or 'TABLE'}",
        "list_id": id,
        "listed": text,
        "The_listed": text[0].upper() + text[1:],
        "index": listed.index and repr(listed.index),
        "condition": repr(key),
        "is_descending": kind.has_new_id,
        "is_partial": listed.is_partial,
        "is_selected": listed.is_partial or len(system.kinds) > 1,
        "point_read": f", partial(self._store.find, keys.{kind.name.upper()})" if listed.is_partial else "",
        "has_child_reads": ", has_child_reads=True" if listed.is_partial else "",
        "partition_parameters": _followed(", ".join(f"{part.name}: str" for part in parts)),
        "list_parameters": _followed(", ".join(f"{part.name}: {part.argument}" for part in parts)),
        "partition_checked": _tuple(part.check for part in parts),
        "partition_value": _partition(listed.partition),
        "prefix": f', "prefix": {listed.prefix!r}' if listed.prefix else "",
        "list_owner": ", owner=partition[0]" if kind.owner else "",
        "list_arguments": arguments,
        "demo_arguments": _followed(", ".join(f'{part.api_name}: "{_demo(part)}"' for part in parts)),
        "bound": f"{{{','.join(sorted(bound))}}}",
        "list_calls": repr([f"GetItem {system.table}", query] if listed.is_partial else [query])[1:-1],
    }


def _thing(part: KeyPart) -> str:
    """Return what a part of a key identifies: the user of a `user_id`."""
    return words(part.name.removesuffix("_id"))


def _demo(part: KeyPart) -> str:
    return "demo" if part.role == "owner" else part.example


def _followed(text: str) -> str:
    return f"{text}, " if text else ""


def _tuple(elements: Iterable[str]) -> str:
    texts = list(elements)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _source(part: KeyPart | str) -> str:
    return repr(part) if isinstance(part, str) else part.name


def _partition(parts: Sequence[KeyPart | str]) -> str:
    """Return an expression of the text of a partition key. A value that is the whole key is not escaped."""
    if not any(isinstance(part, KeyPart) for part in parts):
        return repr("#".join(map(str, parts)))
    return _source(parts[0]) if len(parts) == 1 else f"join({', '.join(map(_source, parts))})"


def _record_fields(system: SystemDesign, kind: ItemKind) -> Iterator[str]:
    """Yield the declarations of the record's fields. Those with a default follow the others."""
    for part in kind.parameters:
        given = "form=Identifier()" if system.writes and part.role == "given" else ""
        yield f"{part.name}: str = stored.part({repr(part.attribute) if part.attribute else given})"
    yield from (each.declaration for each in sorted(kind.attributes, key=lambda each: "default=" in each.declaration))


def _schema_fields(kind: ItemKind) -> Iterator[str]:
    for part in kind.parameters:
        yield f"{part.name}: {part.schema_type} = described({part.description!r})"
    yield from (each.schema for each in kind.attributes)
