"""The metric with the version of the process."""

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily

from server.version import Build


class BuildInfo:
    """A collector of `gateway_build_info`, which is always 1."""

    def __init__(self, build: Build) -> None:
        self._family = GaugeMetricFamily(
            "gateway_build_info", "The version of the process, as labels.", labels=Build._fields
        )
        self._family.add_metric(build, 1)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield self._family
