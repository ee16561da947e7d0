"""The design of a new system from the options of the command."""

import keyword
import re

from runtime.scaffold.design import (
    CannotGenerate,
    ItemField,
    ItemKind,
    ItemList,
    KeyPart,
    SystemDesign,
    singular,
    words,
)

# The names of fields, parameters and variables of a new system, and of arguments with other values in other lists.
RESERVED = {
    *("after", "before", "buffer", "caller", "changes", "connection", "context", "created_at", "expected"),
    *("expected_version", "expires_at", "first", "id", "info", "input", "item", "join", "key", "keys", "kind", "last"),
    *("order", "partial", "partition", "select", "self", "span", "stored", "text", "type", "validate", "values"),
    *("version", "when_slow", "written"),
}


def design_from_options(
    name: str,
    key: str = "user",
    sort: str = "time",
    *,
    lifetime_days: int | None = None,
    version: bool = False,
    live: bool = False,
) -> SystemDesign:
    """Return the design of a system with one kind of items, which have one text. Without a lifetime they never expire.

    Raises `CannotGenerate` for attributes that cannot be used.
    """
    if key == sort:
        raise CannotGenerate(f"--key and --sort name two attributes, not {key!r} twice.")
    if live and key != "user":
        raise CannotGenerate("--live follows the items of an owner: it needs --key user.")
    kind = singular(name)
    partition = (
        KeyPart("user_id", "The id of the user.", "owner", example="ada") if key == "user" else _given("--key", key)
    )
    id = KeyPart(f"{kind}_id", f"The {words(kind)}'s id. It sorts by the time of creation.", "new id")
    sorted_by = id if sort == "time" else _given("--sort", sort)
    attributes = [
        ItemField("text", "text", "text", '"The text."', options="form=Prose(1000)"),
        ItemField("createdAt", "created_at", "time", '"The time of creation."'),
    ]
    if lifetime_days is not None:
        attributes.append(
            ItemField("expiresAt", "expires_at", "ttl", f'"The time at which the {words(kind)} expires."')
        )
    if version:
        attributes.append(ItemField("version", "version", "version", "VERSION", options="default=0"))
    listed = ItemList(name, partition.api_name, (partition,))
    return SystemDesign(
        name,
        name.replace("_", "-"),
        partition.api_name,
        sorted_by.api_name,
        [ItemKind(kind, name, ((partition,), (sorted_by,)), attributes, [listed])],
        ttl=None if lifetime_days is None else "expiresAt",
        lifetime_days=lifetime_days,
        has_stream=live,
        writes=True,
        version=version,
        live=live,
    )


def check_name(name: str) -> None:
    """Raise `CannotGenerate` if a system cannot have this name."""
    if not re.fullmatch(r"[a-z]+(_[a-z]+)*s", name):
        raise CannotGenerate(f"The name must be a plural in lower case, such as `shopping_lists`, not {name!r}.")
    for word in (name, singular(name)):
        if keyword.iskeyword(word):
            raise CannotGenerate(f"The name {name!r} cannot be used: {word!r} is a keyword of Python.")


def _given(option: str, text: str) -> KeyPart:
    """Return the part of a key that `NAME` or `NAME:TYPE` describes."""
    name, _, kind = text.partition(":")
    special = {"user": "--key", "time": "--sort"}.get(name)
    if special and not kind:
        raise CannotGenerate(f"`{name}` has a meaning of its own for {special} only.")
    if not re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", name):
        raise CannotGenerate(f"{option} names an attribute in lower case, such as `shop` or `shop_id`, not {name!r}.")
    if keyword.iskeyword(name) or name in RESERVED:
        raise CannotGenerate(f"{option} cannot be {name!r}: the generated code uses this name otherwise.")
    if kind not in ("", "text"):
        raise CannotGenerate(f"{option}: the type of {name} must be text, not {kind!r}: keys are texts.")
    return KeyPart(name, f"The {words(name)}.", example="one")
