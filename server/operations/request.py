"""Prepared requests, and the read units that an operation costs in addition to its reads."""

from enum import StrEnum

from graphql.language import OperationType
from msgspec import Struct

from server.admission.callers import Caller
from server.documents.document_cache import PreparedOperation
from server.documents.request import GraphQLParams
from server.operations.outcome import MAX_RESPONSE_CHARACTERS

# The read units that an operation costs at least: one that reads nothing causes work as well. The same number is added
# for each portion of the four sizes below: characters of an untrusted document, values in the variables, introspection
# values, and bytes of decoded JSON.
MIN_UNITS = 0.25
CHARACTERS_PER_PORTION, VALUES_PER_PORTION, INTROSPECTED_PER_PORTION = 1_024, 100, 250
BYTES_PER_PORTION = 16_384
# The characters of a document that are charged at most.
MAX_CHARACTERS = 32_768
# A value of a response takes some 2 µs, and a read unit pays for about a millisecond.
VALUES_PER_UNIT = 500
# The bytes of a response per read unit: as many as an eventually consistent read returns for one.
RESPONSE_BYTES_PER_UNIT = 8_192
FREE_EVENT_BYTES = 4_096
# Executing for a response with more values waits for a time slice of the event loop.
UNSLICED_VALUES = 250
# The characters of a response with more values are counted before it is encoded. A response with fewer values is rarely
# too long: its characters are counted only if it has more than MAX_RESPONSE_CHARACTERS bytes when it is encoded.
UNMEASURED_VALUES = MAX_RESPONSE_CHARACTERS // 2_000


class Transport(StrEnum):
    """The protocol that carried an operation."""

    HTTP = "http"
    EVENTS = "sse"
    MULTIPART = "multipart"
    WEBSOCKET = "websocket"
    MCP = "mcp"


class IncrementalFormat(StrEnum):
    """The format of the payloads, by the parameter of the media type that selects it."""

    #: Results by ids, which `pending` announces and `completed` ends.
    IDS = "incrementalspec=v0.2"
    #: Results by path and label.
    PATHS = "deferspec=20220824"


class Request(Struct, eq=False):
    """An operation that is ready to be executed: prepared, with an estimate within the limit, and not yet charged."""

    params: GraphQLParams
    caller: Caller
    transport: Transport
    operation: PreparedOperation
    estimate: float
    #: The read units that the operation costs at least.
    min_units: float = MIN_UNITS
    #: The largest number of values in the response.
    max_values: float = 0.0
    #: Whether the response is delivered in parts, because `@defer` or `@stream` is active.
    is_incremental: bool = False

    @property
    def charged(self) -> float:
        """The read units that are charged before the execution."""
        estimate, least, values = self.estimate, self.min_units, self.max_values / VALUES_PER_UNIT
        most = estimate if estimate > least else least
        return most if most > values else values

    @property
    def kind(self) -> OperationType:
        return self.operation.kind


def preparation_units(characters: int, values: int = 0, introspected: int = 0, size: int = 0) -> float:
    """Return the read units that preparing an operation costs, independent of its reads.

    `characters` is the length of the text, or 0 for a trusted document.
    """
    portions = (characters if characters < MAX_CHARACTERS else MAX_CHARACTERS) // CHARACTERS_PER_PORTION
    return MIN_UNITS * (
        1
        + portions
        + values // VALUES_PER_PORTION
        + introspected // INTROSPECTED_PER_PORTION
        + size // BYTES_PER_PORTION
    )


def event_units(request: Request, size: int) -> float:
    """Return the read units that an event of `size` bytes costs at least: for its execution, or for more than 4 KB."""
    least, values = request.min_units, request.max_values / VALUES_PER_UNIT
    if values > least:
        least = values
    if size <= FREE_EVENT_BYTES:
        return least
    return max(least, (size - FREE_EVENT_BYTES) / RESPONSE_BYTES_PER_UNIT)
