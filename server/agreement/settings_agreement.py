"""The comparison of this gateway's settings with those of the other running gateways, at the start and every minute."""

import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from datastore.dynamodb.retry.classify import RequestRefused
from datastore.errors import DomainError
from datastore.gateway.running_gateways import RunningGateway, RunningGateways
from datastore.primitives.retries import OutageLog
from datastore.primitives.tasks import every
from datastore.session.store import Store
from server.agreement.fingerprints import differences, fingerprints_of, shared_variables
from server.settings import Settings

EVERY_SECONDS = 60.0
# The age of an item above which its gateway has probably ended without deleting it.
STALE = timedelta(seconds=150)
# A difference that lasts is logged again after this many comparisons.
LOGGED_EVERY = 10
STORE_SECONDS = 10.0

logger = logging.getLogger(__name__)


class SettingsAgreement(Collector):
    """The agreement of this gateway's settings with those of the others, also as a collector of metrics.

    `run` is a text that is unique to the process. Processes that share a port share an item.
    """

    def __init__(
        self,
        settings: Settings,
        open_store: Callable[[float], Store],
        registry: CollectorRegistry,
        *,
        now: Callable[[], datetime],
        run: str,
    ) -> None:
        self._address = f"{socket.gethostname()}:{settings.port}"
        self._fingerprints = fingerprints_of(settings)
        self._variables = shared_variables(settings)
        self._open_store = open_store
        self._now = now
        self._run = run
        self._differing: Mapping[str, int] | None = None
        self._repeats = 0
        self._logged: set[tuple[str, str]] = set()
        self._outage = OutageLog(
            lambda problem: logger.warning("The settings of the gateways cannot be compared: %s", problem)
        )
        registry.register(self)

    @property
    def state(self) -> dict[str, object]:
        """The fields for `/readyz`: `settings`, and the differing variables. Empty before the first comparison."""
        if self._differing is None:
            return {}
        if not self._differing:
            return {"settings": "ok"}
        return {"settings": "differ", "differing": sorted(self._differing)}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "gateway_settings_differing", "Running gateways whose setting differs from this one's.", labels=["setting"]
        )
        if self._differing is not None:
            for variable in self._variables:
                family.add_metric([variable], self._differing.get(variable, 0))
        yield family

    async def watch(self) -> None:
        """Compare the settings now and every minute until cancelled. Then delete this gateway's item."""
        try:
            await every(EVERY_SECONDS, self.compare)
        finally:
            await self._leave()

    async def compare(self) -> None:
        """Compare this gateway with the others, and store its item. Keep the last result while the store fails."""
        gateways = RunningGateways(self._open_store(STORE_SECONDS))
        try:
            others = await gateways.all()
            self._report([other for other in others if self._is_other(other)])
            await gateways.put(self._own())
        except (DomainError, RequestRefused) as problem:
            self._outage.record_failure(problem)
        else:
            self._outage.record_success()

    def _own(self) -> RunningGateway:
        return RunningGateway(self._address, self._run, self._now(), self._fingerprints)

    def _is_other(self, gateway: RunningGateway) -> bool:
        return gateway.run != self._run and self._now() - gateway.seen_at < STALE

    def _report(self, others: list[RunningGateway]) -> None:
        found = {other.address: differences(self._fingerprints, other.fingerprints) for other in others}
        self._differing = Counter(variable for variables in found.values() for variable in variables)
        pairs = {(address, variable) for address, variables in found.items() for variable in variables}
        self._repeats = self._repeats + 1 if pairs == self._logged else 0
        if pairs and self._repeats % LOGGED_EVERY == 0:
            for address, variables in sorted(found.items()):
                if variables:
                    logger.error(
                        "The gateway %s has another %s than this one (%s). Gateways of one installation need the same: "
                        "set it to one value, and restart the gateway that differs.",
                        *(address, ", ".join(sorted(variables)), self._address),
                    )
        elif self._logged and not pairs:
            logger.info("The settings of all running gateways agree.")
        self._logged = pairs

    async def _leave(self) -> None:
        try:
            await RunningGateways(self._open_store(1.0)).delete(self._own())
        except (DomainError, RequestRefused) as problem:
            logger.info("This gateway's item remains until it expires: %s", problem)
