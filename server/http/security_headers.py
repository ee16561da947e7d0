"""Security headers of every HTTP response.

https://cheatsheetseries.owasp.org/cheatsheets/HTTP_Headers_Cheat_Sheet.html
"""

from collections.abc import Iterable

from server.http.headers import SECURITY_HEADERS, Header, lines_of

# RFC 6797. Subdomains are not included: they belong to other services.
_ONLY_TLS = (b"strict-transport-security", b"max-age=31536000")


class SecurityHeaders:
    """The headers that an application adds. With `always_https` all clients connect by TLS.

    By the time they are sent, the scheme of the scope is that of a trusted proxy's X-Forwarded-Proto.
    """

    def __init__(self, *, always_https: bool) -> None:
        by_tls = (*SECURITY_HEADERS, _ONLY_TLS)
        self._headers = (by_tls if always_https else SECURITY_HEADERS, by_tls)
        #: The header lines of a complete response by HTTP, and by HTTPS. It sets the header about caching itself.
        self.lines = tuple(lines_of(headers[1:]) for headers in self._headers)

    def missing(self, headers: Iterable[Header], scheme: str) -> list[Header]:
        """Return the security headers that a response with these headers does not set itself."""
        present = {name.lower() for name, _ in headers}
        return [header for header in self._headers[scheme == "https"] if header[0] not in present]
