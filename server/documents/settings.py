"""How documents are set up: which are known, and what they may ask."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from server.documents.limits import DocumentLimits, parse_limits

TABLE = "table"
VARIABLES = (
    *("GATEWAY_DOCUMENTS", "GATEWAY_DOCUMENTS_MODE", "GATEWAY_DOCUMENTS_ADMIN_BYPASS", "GATEWAY_APQ"),
    *("GATEWAY_INTROSPECTION", "GATEWAY_MAX_COST", "GATEWAY_DOCUMENT_LIMITS", "GATEWAY_EXECUTOR"),
)
MAX_COST = 2_000.0
_SWITCH = {"on": True, "off": False}


class DocumentsMode(StrEnum):
    """What trusted documents are for.

    OFF: there are none. LOG: every document runs, and the log names those that are not registered. PREFER: registered
    ones may be named by id, others run too. ENFORCE: no others run.
    """

    OFF = "off"
    LOG = "log"
    PREFER = "prefer"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True)
class DocumentSettings:
    """`source` is where trusted documents are: the path of a manifest, or `table`. `admin_bypass` tells whether admins
    may run others though they are enforced, and `automatic` whether clients may have texts kept under their hash.
    Without `introspection` the schema is told to admins alone. `max_cost` is what an operation may cost at the most, in
    read units (infinite where the environment says 0), and `limits` what documents may hold; trusted ones ten times as
    much. `compiles` tells whether operations that are executed again are compiled.

    Raises `ValueError` for a mode that needs a source, without one.
    """

    mode: DocumentsMode = DocumentsMode.OFF
    source: str | None = None
    admin_bypass: bool = True
    automatic: bool = True
    introspection: bool = True
    max_cost: float = MAX_COST
    limits: DocumentLimits = DocumentLimits()  # noqa: RUF009 - frozen
    compiles: bool = True

    def __post_init__(self) -> None:
        if self.mode is not DocumentsMode.OFF and self.source is None:
            raise ValueError(
                f"Set GATEWAY_DOCUMENTS beside GATEWAY_DOCUMENTS_MODE={self.mode}: the path of a manifest, or {TABLE}."
            )


def document_settings(environment: Mapping[str, str]) -> DocumentSettings:
    """What the environment says. Documents without a mode are preferred. Raises `ValueError` with the variable."""
    source = environment.get("GATEWAY_DOCUMENTS") or None
    mode = environment.get("GATEWAY_DOCUMENTS_MODE") or (DocumentsMode.PREFER if source else DocumentsMode.OFF)
    if mode not in list(DocumentsMode):
        raise ValueError(f"GATEWAY_DOCUMENTS_MODE must be {', '.join(DocumentsMode)}, not {mode!r}.")
    return DocumentSettings(
        DocumentsMode(mode),
        source,
        admin_bypass=_switch("GATEWAY_DOCUMENTS_ADMIN_BYPASS", environment),
        automatic=_switch("GATEWAY_APQ", environment),
        introspection=_switch("GATEWAY_INTROSPECTION", environment),
        max_cost=_units("GATEWAY_MAX_COST", environment),
        limits=_limits("GATEWAY_DOCUMENT_LIMITS", environment),
        compiles=_executor("GATEWAY_EXECUTOR", environment),
    )


def _executor(name: str, environment: Mapping[str, str]) -> bool:
    text = environment.get(name) or "compiled"
    if text not in ("compiled", "interpreted"):
        raise ValueError(f"{name} must be compiled or interpreted, not {text!r}.")
    return text == "compiled"


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


def _switch(name: str, environment: Mapping[str, str]) -> bool:
    text = environment.get(name) or "on"
    if text not in _SWITCH:
        raise ValueError(f"{name} must be on or off, not {text!r}.")
    return _SWITCH[text]
