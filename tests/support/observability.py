"""Operations and metrics for the tests of logs, metrics and spans."""

from prometheus_client.parser import text_string_to_metric_families

from tests.support.served import Served

QUAKES = "query Newest { earthquakes(first: 2) { nodes { place } } }"


async def metric_samples(served: Served, **headers: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return every sample of /metrics by name and labels."""
    async with served.http.get(f"{served.url}/metrics", headers=headers) as response:
        assert response.status == 200
        assert response.headers["content-type"].startswith("text/plain; version=")
        text = await response.text()
    families = text_string_to_metric_families(text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}
