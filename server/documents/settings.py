"""The settings of documents: trusted documents, automatic persisted queries and limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from server.documents.limits import DocumentLimits, parse_limits

TABLE = "table"
VARIABLES = (
    *("GATEWAY_DOCUMENTS", "GATEWAY_DOCUMENTS_MODE", "GATEWAY_DOCUMENTS_ADMIN_BYPASS", "GATEWAY_APQ"),
    *("GATEWAY_INTROSPECTION", "GATEWAY_MAX_COST", "GATEWAY_DOCUMENT_LIMITS", "GATEWAY_EXECUTOR"),
    "GATEWAY_INCREMENTAL",
    "GATEWAY_FEDERATION",
)
MAX_COST = 2_000.0


class DocumentsMode(StrEnum):
    """The use of trusted documents."""

    OFF = "off"
    #: Every document is executed, and the log names the unregistered ones.
    LOG = "log"
    #: A client may name a registered document by its id. Other documents are executed as well.
    PREFER = "prefer"
    #: Only registered documents are executed.
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True)
class DocumentSettings:
    """The settings. Raises `ValueError` if there is a mode but no source."""

    mode: DocumentsMode = DocumentsMode.OFF
    #: The source of trusted documents: the path of a manifest, or `table`.
    source: str | None = None
    #: Whether admins may execute any document in the mode ENFORCE.
    admin_bypass: bool = True
    #: Whether clients may register automatic persisted queries.
    automatic: bool = True
    #: Whether every caller may introspect the schema, rather than admins only.
    introspection: bool = True
    #: The largest cost of an operation in read units. 0 in the environment means no limit, and infinity here.
    max_cost: float = MAX_COST
    limits: DocumentLimits = DocumentLimits()  # noqa: RUF009 - frozen
    #: Whether repeated operations are compiled.
    compiles: bool = True
    #: Whether the schema has `@defer` and `@stream`.
    incremental: bool = False
    #: Whether the schema has the fields of a federation subgraph, `_service` and `_entities`.
    federation: bool = False

    def __post_init__(self) -> None:
        if self.mode is not DocumentsMode.OFF and self.source is None:
            raise ValueError(
                f"GATEWAY_DOCUMENTS_MODE={self.mode} needs GATEWAY_DOCUMENTS: set the path of a manifest, or {TABLE}."
            )


def document_settings(environment: Mapping[str, str]) -> DocumentSettings:
    """Return the settings in the environment. With a source and no mode, the mode is PREFER. Raises `ValueError`."""
    source = environment.get("GATEWAY_DOCUMENTS") or None
    mode = environment.get("GATEWAY_DOCUMENTS_MODE") or (DocumentsMode.PREFER if source else DocumentsMode.OFF)
    if mode not in list(DocumentsMode):
        raise ValueError(f"GATEWAY_DOCUMENTS_MODE must be {', '.join(DocumentsMode)}, not {mode!r}.")
    return DocumentSettings(
        DocumentsMode(mode),
        source,
        admin_bypass=_is_first("GATEWAY_DOCUMENTS_ADMIN_BYPASS", environment, "on", "off"),
        automatic=_is_first("GATEWAY_APQ", environment, "on", "off"),
        introspection=_is_first("GATEWAY_INTROSPECTION", environment, "on", "off"),
        max_cost=_units("GATEWAY_MAX_COST", environment),
        limits=_limits("GATEWAY_DOCUMENT_LIMITS", environment),
        compiles=_is_first("GATEWAY_EXECUTOR", environment, "compiled", "interpreted"),
        incremental=not _is_first("GATEWAY_INCREMENTAL", environment, "off", "on"),
        federation=not _is_first("GATEWAY_FEDERATION", environment, "off", "on"),
    )


def _is_first(name: str, environment: Mapping[str, str], first: str, second: str) -> bool:
    """Return whether a variable has the first of two values, which is the default. Raises `ValueError` for others."""
    text = environment.get(name) or first
    if text not in (first, second):
        raise ValueError(f"{name} must be {first} or {second}, not {text!r}.")
    return text == first


def _units(name: str, environment: Mapping[str, str]) -> float:
    text = environment.get(name)
    try:
        units = MAX_COST if not text else float(text)
    except ValueError:
        units = -1.0
    if not 0 <= units < float("inf"):
        raise ValueError(f"{name} must be a number of read units, 0 or more, not {text!r}.")
    return units or float("inf")


def _limits(name: str, environment: Mapping[str, str]) -> DocumentLimits:
    text = environment.get(name)
    try:
        return parse_limits(text) if text else DocumentLimits()
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}.") from None
