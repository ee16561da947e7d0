"""Queries in FTS5's notation. https://www.sqlite.org/fts5.html#full_text_query_syntax"""

from collections.abc import Iterator

from datastore.search.queries import Query, Term


def tiers(query: Query) -> Iterator[tuple[int, str]]:
    """Yield the expressions of a query with their scores, the most relevant first. No entry matches two of them.

    Score 2: the words are adjacent and in this order. Score 1: all terms match as whole words. Score 0: the last term
    matches only as a prefix.
    """
    *others, last = query.terms
    before = " AND ".join(map(_term, others))
    whole = _and(before, _term(last))
    if query.phrase:
        phrase = f'words : "{" ".join(query.phrase)}"'
        yield 2, phrase
        yield 1, f"({whole}) NOT ({phrase})"
    else:
        yield 1, whole
    yield 0, _and(before, f"({_term(last)} * NOT {_term(last)})")


def _term(term: Term) -> str:
    # A term consists of letters, digits, marks and underscores: within quotation marks it has no operators.
    return f'{"tags" if term.tag else "words"} : "{term.text}"'


def _and(before: str, last: str) -> str:
    return f"{before} AND {last}" if before else last
