"""Checks of the description, tags and camera of a photo."""

from collections.abc import Sequence
from functools import partial

from datastore.errors import BadUserInput
from datastore.model.identifiers import normal_tag
from resolvers.shared import validation as validate

LONGEST_DESCRIPTION = 1000
LONGEST_CAMERA = 100
LONGEST_TAG, MAX_TAGS = 50, 20

description = partial(validate.prose, longest=LONGEST_DESCRIPTION)
camera = partial(validate.prose, longest=LONGEST_CAMERA)


def tags(field: str, values: Sequence[str]) -> list[str]:
    """Return the tags in lower case, in their order, without duplicates. Raises `BadUserInput` beyond a limit."""
    if len(values) > MAX_TAGS:
        raise BadUserInput(f"`{field}` may contain at most {MAX_TAGS}, not {len(values)}.", field=field)
    return list(dict.fromkeys(_tag(f"{field}[{index}]", value) for index, value in enumerate(values)))


def _tag(field: str, value: str) -> str:
    validate.line(field, value, LONGEST_TAG)
    name = normal_tag(value.strip())
    if name is None:
        raise BadUserInput(f"`{field}` must not contain characters whose lower case is an ASCII letter.", field=field)
    # Some characters become longer in lower case.
    return validate.line(field, name, LONGEST_TAG)
