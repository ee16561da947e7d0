"""The form of the declaration of a setting."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable of the gateway, or variables that are set together, with the option of `serve`."""

    names: tuple[str, ...]
    #: The type and the allowed values, as Markdown.
    values: str
    #: The default, as Markdown; of several names one for each, or one for all.
    default: str
    #: The effect, as Markdown, with links relative to docs/.
    effect: str
    option: str = ""


@dataclass(frozen=True, slots=True)
class Concern:
    """A heading of the page, with its variables in the order of the page."""

    title: str
    variables: tuple[Variable, ...]


def one(name: str, values: str, default: str, effect: str, option: str = "") -> Variable:
    """Return the declaration of a single variable."""
    return Variable((name,), values, default, effect, option)


# The texts that several declarations share.
NUMBER = "a whole number, 0 or more"
FRACTION = "a number, 0 or more"
SECONDS = "a number of seconds above 0"
REDIS = "a URL, `redis://` or `rediss://`"
SWITCH = "`on` or `off`"
SECRET = "a text of at least 32 characters"
