"""The forms of keys: each kind of item declares its key, and each of its index keys, once as a typed function.

    @item_key(BLIP)
    def watch(user_id: str, area: str, category: str, watch_id: str) -> KeyParts:
        return ("USER", user_id), ("WATCH", area, category, watch_id)

The function is called once, at import, with a placeholder for each parameter. `watch(…)` returns a key, `watch.parts`
the values in a key, `watch.matches` whether a key has this form, and `watch.documented` the form as documentation.
`watch.read`, `watch.query`, `watch.scan`, `watch.put`, `watch.update` and `watch.delete` declare the access patterns of
such items.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import update_wrapper
from inspect import signature
from typing import Any, Generic, ParamSpec

from datastore.model.access_patterns import DELETE, GET, PUT, QUERY, SCAN, UPDATE, AccessPattern, Operations, Table, Who
from datastore.model.composite_keys import Key, escape_part, split
from datastore.model.timestamps import iso

P = ParamSpec("P")
Part = str | int | datetime
# The parts of the partition key and of the sort key. The latter has none in a table without a sort key.
KeyParts = tuple[tuple[Part, ...], tuple[Part, ...]]


class Placeholder(str):
    """A parameter in the parts of a key."""

    __slots__ = ()


class ItemKey(Generic[P]):
    """The form of the keys of one kind of item, in its table or in an index."""

    def __init__(self, form: Callable[P, KeyParts], table: Table, index: str | None) -> None:
        update_wrapper(self, form)
        self.table = table
        self.index = index
        self.parameters = tuple(signature(form).parameters)
        template: Callable[..., KeyParts] = form
        self.partition, self.sort = template(*map(Placeholder, self.parameters))
        keys = table if index is None else table.index(index)
        #: The names of the partition and the sort attribute; the latter is empty for a table without one.
        self.attributes = keys.partition, keys.sort or ""
        #: The text with which all sort keys of this form begin.
        self.prefix = _prefix(self.sort)
        # `tuple.__new__` makes a key without the function that a `NamedTuple` has for it.
        scope: dict[str, Any] = {"Key": Key, "new": tuple.__new__, "iso": iso, "split": split}
        scope["escape_part"] = escape_part
        #: The parameters that are times.
        self.moments = {name for name, kind in signature(form).parameters.items() if kind.annotation is datetime}
        exec(self._source(), scope)
        # A class of its own, so that a call of the form is a call of the generated function.
        self.__class__ = type("ItemKey", (ItemKey,), {"__call__": staticmethod(scope["key"])})
        self._parts: Callable[[str, str], tuple[str, ...]] = scope["parts"]
        #: Return the partition key for the values of its parameters.
        self.partition_of: Callable[..., str] = scope["partition_of"]
        #: Return the values of a Query of all items in a partition, for the values of its parameters.
        self.values_of: Callable[..., dict[str, Any]] = scope["values_of"]
        #: Return whether an item, or a key with its attributes, has this form.
        self.matches: Callable[[Mapping[str, Any]], bool] = scope["matches"]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Key:
        raise NotImplementedError  # each form has a class of its own

    def item(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Return a key of this form as attributes of an item."""
        return {name: value for name, value in zip(self.attributes, self(*args, **kwargs), strict=True) if name}

    def parts(self, key: Key) -> tuple[str, ...]:
        """Return the values of the parameters in a key, in their order.

        Raises `ValueError` if the key has another number of parts.
        """
        return self._parts(key.partition, key.sort)

    def is_form_of(self, key: Key) -> bool:
        """Return whether a key has this form, with as many parts. `matches` compares the beginnings of keys only.

        A value that is the whole key is one part, so a value with `#` does not have the form.
        """
        return all(map(_has_form, key, (self.partition, self.sort)))

    @property
    def documented(self) -> str:
        """The form as the documentation shows it: `PK = USER#<userId>, SK = PROFILE`."""
        texts = zip(self.attributes, (self.partition, self.sort), strict=True)
        return ", ".join(f"{name} = {'#'.join(map(_shown, parts))}" for name, parts in texts if parts)

    def read(
        self, id: str, question: str, who: Who = Who.INTERNAL, fields: tuple[str, ...] = (), **options: Any
    ) -> AccessPattern:
        """Declare the access pattern of a point read. `options` are further attributes of the pattern."""
        return AccessPattern(id, question, self.table, GET, who, fields, **{"key": self.documented, **options})

    def put(
        self, id: str, question: str, who: Who = Who.INTERNAL, fields: tuple[str, ...] = (), **options: Any
    ) -> AccessPattern:
        """Declare the access pattern of a PutItem."""
        return AccessPattern(id, question, self.table, PUT, who, fields, **options)

    def update(
        self, id: str, question: str, who: Who = Who.INTERNAL, fields: tuple[str, ...] = (), **options: Any
    ) -> AccessPattern:
        """Declare the access pattern of an UpdateItem."""
        return AccessPattern(id, question, self.table, UPDATE, who, fields, **options)

    def delete(
        self, id: str, question: str, who: Who = Who.INTERNAL, fields: tuple[str, ...] = (), **options: Any
    ) -> AccessPattern:
        """Declare the access pattern of a DeleteItem."""
        return AccessPattern(id, question, self.table, DELETE, who, fields, **options)

    def scan(
        self, id: str, question: str, who: Who = Who.INTERNAL, fields: tuple[str, ...] = (), **options: Any
    ) -> AccessPattern:
        """Declare the access pattern of a Scan of the table."""
        return AccessPattern(id, question, self.table, SCAN, who, fields, **options)

    def query(
        self,
        id: str,
        question: str,
        who: Who = Who.INTERNAL,
        fields: tuple[str, ...] = (),
        *,
        operations: Operations = QUERY,
        key: str = "",
        **options: Any,
    ) -> AccessPattern:
        """Declare the access pattern of a Query, by default of all items of this form in a partition (`values_of`)."""
        partition, sort = self.attributes
        key = key or f"{partition} = :partition" + (f" AND begins_with({sort}, :prefix)" if self.prefix else "")
        return AccessPattern(id, question, self.table, operations, who, fields, index=self.index, key=key, **options)

    def source(self, parts: tuple[Part, ...], value: Callable[[str], str]) -> str:
        """Return an expression of the text of the parts. `value` returns the expression of a parameter."""
        if len(parts) == 1 and isinstance(parts[0], Placeholder):
            return value(parts[0])  # a value that is the whole key is not escaped
        texts = [
            f"escape_part({self._text(part, value(part))})" if isinstance(part, Placeholder) else repr(str(part))
            for part in parts
        ]
        return " + '#' + ".join(texts) or "''"

    def _text(self, parameter: str, value: str) -> str:
        """Return an expression of the text of a parameter, given that of its value."""
        return f"iso({value})" if parameter in self.moments else value

    def _source(self) -> str:
        partition, sort = (self.source(parts, str) for parts in (self.partition, self.sort))
        lines = [f"def key({', '.join(self.parameters)}):", f"    return new(Key, ({partition}, {sort}))"]
        in_partition = [str(part) for part in self.partition if isinstance(part, Placeholder)]
        prefix = f", 'prefix': {self.prefix!r}" if self.prefix else ""
        for name, value in (("partition_of", partition), ("values_of", f"{{'partition': {partition}{prefix}}}")):
            lines += [f"def {name}({', '.join(in_partition)}):", f"    return {value}"]
        lines += ["def matches(item):", f"    return {' and '.join(self._tests())}"]
        lines.append("def parts(partition, sort):")
        for variable, parts in (("partition", self.partition), ("sort", self.sort)):
            targets = [str(part) if isinstance(part, Placeholder) else "_" for part in parts]
            if set(targets) - {"_"}:
                text = f"split({variable})" if len(parts) > 1 else f"{variable},"
                lines.append(f"    {', '.join(targets)}, = {text}")
        return "\n".join([*lines, f"    return ({''.join(f'{name}, ' for name in self.parameters)})"])

    def _tests(self) -> Iterator[str]:
        """Yield an expression for each key attribute, whether that of `item` has this form. Sort keys differ most."""
        for name, parts in zip(self.attributes[::-1], (self.sort, self.partition), strict=True):
            if parts:
                is_constant = not any(isinstance(part, Placeholder) for part in parts)
                test = " == {!r}" if is_constant else ".startswith({!r})"
                yield f"item[{name!r}]{test.format(_prefix(parts))}"


def item_key(table: Table, index: str | None = None) -> Callable[[Callable[P, KeyParts]], ItemKey[P]]:
    """Declare a function as the form of keys in a table, or in an index of it."""
    return lambda form: ItemKey(form, table, index)


def _has_form(text: str, form: tuple[Part, ...]) -> bool:
    parts = split(text) if text else []
    same = (isinstance(part, Placeholder) or part == other for part, other in zip(form, parts, strict=False))
    return len(parts) == len(form) and all(same)


def _prefix(parts: tuple[Part, ...]) -> str:
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Placeholder):
            return "".join(f"{text}#" for text in texts)
        texts.append(str(part))
    return "#".join(texts)


def _shown(part: Part) -> str:
    if not isinstance(part, Placeholder):
        return str(part)
    first, *others = part.split("_")
    return f"<{first}{''.join(map(str.capitalize, others))}>"
