"""Origins of pages in canonical form, and the check of WebSocket handshakes."""

import re
from collections.abc import Collection

from yarl import URL

# The scheme, a name of 253 characters, and a port.
MAX_CHARACTERS = 300
# No user and no path: a browser sends none, and they could disguise the host.
_ORIGIN = re.compile(r"https?://[^\s/?#@\\]+", re.I)


def canonical_origin(origin: str) -> str | None:
    """Return an origin that a browser sent as `scheme://host[:port]` in lower case, without the default port.

    Return None for anything else, such as `null`, a file or an extension. A browser sends a name in another script in
    Punycode. Converting one takes milliseconds, so that an origin that is not ASCII, or too long, is rejected.
    """
    return _canonical(origin) if len(origin) <= MAX_CHARACTERS and origin.isascii() else None


def _canonical(origin: str) -> str | None:
    if not _ORIGIN.fullmatch(origin):
        return None
    try:
        page = URL(origin)
        found = str(page.origin()) if page.host else ""
        return found if _ORIGIN.fullmatch(found) else None
    except ValueError:
        return None


def canonical_origins(origins: Collection[str]) -> frozenset[str]:
    """Return configured origins in canonical form: names in Punycode, without a slash at the end."""
    pages = (_canonical(origin.removesuffix("/")) for origin in origins)
    return frozenset(page for page in pages if page is not None)


class Origins:
    """The origins that may open WebSockets: the gateway's own, and `allowed` ones, as `https://host[:port]`."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = canonical_origins(allowed)

    def may_connect(self, origin: str | None, host: str) -> bool:
        """Return whether a handshake is allowed. A browser sends the page's origin; other clients send none.

        `host` is the Host header, which a page cannot forge.
        """
        if origin is None:
            return True
        page = canonical_origin(origin)
        return page is not None and (page in self._allowed or page == canonical_origin(f"{URL(page).scheme}://{host}"))
