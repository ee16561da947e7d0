"""An SVG chart of the servers' CPU per request by workload, in colours for light and dark backgrounds."""

from collections.abc import Iterator, Sequence
from html import escape
from statistics import median

from benchmarks.contenders import LOGGING, OURS, Result
from benchmarks.workloads import WORKLOADS

WIDTH, PANEL, NAMES, BARS = 900, 450, 214, 160
ROW, BAR, TITLE, GAP = 19, 11, 42, 22
TEXT, FAINT, OWN, OTHER = "#767d86", "#8b929b", "#1f9d6b", "#8091a7"
STYLE = f"""text {{ font: 12px system-ui, sans-serif; fill: {TEXT} }}
.title {{ font-weight: 600; font-size: 13px }} .small {{ fill: {FAINT} }} .own {{ font-weight: 600; fill: {OWN} }}"""


def chart_svg(results: Sequence[Result]) -> str:
    """Return the chart: two panels side by side, each with its own scale. Shorter bars are better."""
    results = [result for result in results if result.contender != LOGGING.name]
    rows = len({result.contender for result in results})
    height = TITLE + rows * ROW + GAP
    panels = [
        "\n".join(_panel(workload.name, workload.title, results, at % 2 * PANEL, at // 2 * height))
        for at, workload in enumerate(WORKLOADS)
    ]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height * -(-len(panels) // 2)}" role="img">',
        "<title>CPU milliseconds per request of GraphQL servers over DynamoDB</title>",
        f"<style>{STYLE}</style>",
        *panels,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _panel(name: str, title: str, results: Sequence[Result], left: int, top: int) -> Iterator[str]:
    own_results = [result for result in results if result.workload == name]
    greatest = max(median(result.cpu) for result in own_results)
    yield f'<text class="title" x="{left}" y="{top + 14}">{escape(f"{name} {title}")}</text>'
    yield f'<text class="small" x="{left}" y="{top + 30}">CPU ms per request</text>'
    for at, result in enumerate(own_results):
        yield from _bar(result, greatest, left, top + TITLE + at * ROW)


def _bar(result: Result, greatest: float, left: int, top: int) -> Iterator[str]:
    own, cpu = result.contender == OURS.name, median(result.cpu)
    kind = ' class="own"' if own else ""
    base, length = top + BAR, max(cpu / greatest * BARS, 1)
    yield f'<text{kind} x="{left}" y="{base}">{escape(result.contender)}</text>'
    fill = OWN if own else OTHER
    yield f'<rect x="{left + NAMES}" y="{top + 1}" width="{length:.1f}" height="{BAR}" rx="2" fill="{fill}"/>'
    figure = f"{cpu:.2f}" if cpu < 10 else f"{cpu:.1f}"
    yield f'<text{kind} x="{left + NAMES + length + 6:.1f}" y="{base}">{figure}</text>'
