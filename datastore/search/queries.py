"""Search queries: the parser of a caller's text into terms. The text has no operators."""

from msgspec import Struct

from datastore.errors import BadUserInput
from datastore.search import folding

MAX_QUERY_LENGTH = 200  # characters
MAX_TERMS = 10


class Term(Struct, frozen=True):
    """A word, or with `tag` the name of a tag: only letters, digits, marks and underscores."""

    text: str
    tag: bool = False


class Query(Struct, frozen=True):
    """A query: all terms must match; the last one is a prefix."""

    terms: tuple[Term, ...]

    @property
    def phrase(self) -> tuple[str, ...]:
        """Return the words for a phrase match; empty unless there are two or more and none is a tag."""
        texts = tuple(term.text for term in self.terms)
        return texts if len(texts) > 1 and not any(term.tag for term in self.terms) else ()


def query_of(text: str, *, tags: bool) -> Query:
    """Parse a query. With `tags` a word after `#` is a tag; otherwise `#` separates words.

    Raises `BadUserInput` for a text without a word, of more than 200 characters, or of more than 10 words.
    """
    if len(text) > MAX_QUERY_LENGTH:
        raise BadUserInput(f"`query` may have at most {MAX_QUERY_LENGTH} characters, not {len(text)}.", field="query")
    terms: list[Term] = []
    for part in text.split():
        terms += _terms(part, tags)
    if not terms:
        raise BadUserInput("`query` must have at least one letter or digit.", field="query")
    if len(terms) > MAX_TERMS:
        raise BadUserInput(f"`query` may have at most {MAX_TERMS} words, not {len(terms)}.", field="query")
    return Query(tuple(dict.fromkeys(terms)) if any(term.tag for term in terms) else tuple(terms))


def _terms(part: str, tags: bool) -> list[Term]:
    if not (tags and part.startswith("#")):
        return [Term(word) for word in folding.query_words(part)]
    name = folding.tag(part)
    return [Term(name, tag=True)] if name else []
