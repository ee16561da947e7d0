"""Which pages may connect: their origins, compared as browsers write them."""

import re
from collections.abc import Collection

from yarl import URL

# The scheme, a name of 253 characters, and a port.
MOST_CHARACTERS = 300
# No user, no path: a browser sends none, and who does means to look like another.
_ORIGIN = re.compile(r"https?://[^\s/?#@\\]+", re.I)


def canonical_origin(origin: str) -> str | None:
    """`scheme://host[:port]` in lower case, the scheme's own port left out, of an origin as a browser sends it.

    None for what is no origin of a page: `null`, a file, an extension, or nonsense. A browser sends a name in another
    script in Punycode; to translate one takes milliseconds, so that what is not ASCII, or too long, is not looked at.
    """
    return _canonical(origin) if len(origin) <= MOST_CHARACTERS and origin.isascii() else None


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
    """The configured origins as they are compared: a name in another script in Punycode, without a slash at the end."""
    pages = (_canonical(origin.removesuffix("/")) for origin in origins)
    return frozenset(page for page in pages if page is not None)


class Origins:
    """`allowed` are the pages on other hosts, as `https://host[:port]`."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = canonical_origins(allowed)

    def may_connect(self, origin: str | None, host: str) -> bool:
        """A browser connects on behalf of any page, so the page has to be ours; other clients send no Origin.

        `host` is the address that the page's browser has asked, which it cannot forge.
        """
        if origin is None:
            return True
        page = canonical_origin(origin)
        return page is not None and (page in self._allowed or page == canonical_origin(f"{URL(page).scheme}://{host}"))
