"""The names of places in a table's changes, as clients hold them."""

from typing import NamedTuple

from datastore.errors import BadUserInput

# Where an order began and nothing had been told in it.
NOWHERE = "0"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LONGEST_ORDER, _LONGEST_SHARD, _LONGEST_SEQUENCE = 32, 16, 32


class Place(NamedTuple):
    """The change that was told last: by whose order (see `Sink.begin`), of which shard, and its sequence."""

    order: str
    shard: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.order}.{self.shard}.{_in_36(self.sequence)}"


def place_from(text: str) -> Place:
    """The place that `str` made the text of. Raises `BadUserInput`."""
    order, _, rest = text.partition(".")
    shard, _, sequence = rest.partition(".")
    is_sound = len(order) <= _LONGEST_ORDER and len(shard) <= _LONGEST_SHARD and len(sequence) <= _LONGEST_SEQUENCE
    if not (is_sound and all(part and set(part) <= set(_DIGITS) for part in (order, shard, sequence))):
        raise BadUserInput("This is no id of an event.")
    return Place(order, shard, int(sequence, 36))


def _in_36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
