"""Plain-text tables."""

from collections.abc import Iterator, Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table. Texts are aligned to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    figures = [cell.replace(".", "").isdigit() for cell in rows[0]]
    for row in (head, ["─" * width for width in widths], *rows):
        cells = zip(row, widths, figures, strict=True)
        yield "  ".join(cell.rjust(width) if figure else cell.ljust(width) for cell, width, figure in cells).rstrip()
