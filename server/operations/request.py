"""Prepared requests, and the read units that an operation costs beside its reads."""

from dataclasses import dataclass
from enum import StrEnum

from graphql.language import OperationType

from server.admission.callers import Caller
from server.documents.document_cache import PreparedOperation
from server.documents.request import GraphQLParams
from server.operations.outcome import Outcome

# An operation that reads nothing costs work as well: this many read units for each unit of text that is not trusted,
# of values in its variables, of introspection values and of decoded JSON.
MIN_UNITS = 0.25
CHARACTERS_PER_LEAST, VALUES_PER_LEAST, INTROSPECTED_PER_LEAST = 1_024, 100, 250
BYTES_PER_LEAST = 16_384
MAX_CHARACTERS = 32_768
# A value of a response takes some 2 µs, and a read unit pays for about a millisecond.
VALUES_PER_UNIT = 500
# A response pays a unit for as many bytes as DynamoDB reads for a unit that is not consistent.
ANSWER_BYTES_PER_UNIT = 8_192
FREE_EVENT_BYTES = 4_096


class Transport(StrEnum):
    """The protocol that carried an operation."""

    HTTP = "http"
    EVENTS = "sse"
    WEBSOCKET = "websocket"


@dataclass(slots=True)  # not frozen: a frozen dataclass pays a call for each field, at every operation
class Request:
    """An operation that is ready to be executed: prepared, and within the limit of its estimate, but not charged."""

    params: GraphQLParams
    caller: Caller
    transport: Transport
    operation: PreparedOperation
    estimate: float
    #: The read units that it costs whatever it reads.
    min_units: float = MIN_UNITS
    #: The values that its response may hold.
    max_values: float = 0.0

    @property
    def charged(self) -> float:
        """The read units that are charged in advance."""
        estimate, least, values = self.estimate, self.min_units, self.max_values / VALUES_PER_UNIT
        most = estimate if estimate > least else least
        return most if most > values else values

    @property
    def kind(self) -> OperationType:
        return self.operation.kind


def preparation_units(text: str, values: int = 0, introspected: int = 0, size: int = 0) -> float:
    """Return the read units that preparing an operation costs, whatever it reads."""
    characters = len(text)
    parts = (characters if characters < MAX_CHARACTERS else MAX_CHARACTERS) // CHARACTERS_PER_LEAST
    return MIN_UNITS * (
        1 + parts + values // VALUES_PER_LEAST + introspected // INTROSPECTED_PER_LEAST + size // BYTES_PER_LEAST
    )


def response_units(outcome: Outcome) -> float:
    """Return the read units that the size of a response costs."""
    return len(outcome.body) / ANSWER_BYTES_PER_UNIT


def event_units(request: Request, outcome: Outcome) -> float:
    """Return the read units that an event costs whatever it reads: its execution, or its size beyond 4 KB."""
    size = len(outcome.body)
    by_size = 0.0 if size <= FREE_EVENT_BYTES else (size - FREE_EVENT_BYTES) / ANSWER_BYTES_PER_UNIT
    return max(request.min_units, request.max_values / VALUES_PER_UNIT, by_size)
