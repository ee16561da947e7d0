"""Protection against cross-site request forgery: pages of other sites cannot send requests with a user's credentials.

A browser sends a preflight before a request of another site that is not simple, and it is refused. A POST is never
simple here: its body must be JSON. A GET is accepted if it cannot be simple either, if the browser states that it comes
from this site, or if no browser sent it.

https://fetch.spec.whatwg.org/#cors-safelisted-request-header · https://w3c.github.io/webappsec-fetch-metadata/
"""

from collections.abc import Collection, Mapping

from datastore.errors import Forbidden
from server.http.refusals import Refused
from server.security.origins import canonical_origin

# A request with one of these headers is preflighted. Apollo's clients send the first one.
PREFLIGHTED = (
    "apollo-require-preflight",
    "x-apollo-operation-name",
    "x-graphql-require-preflight",
    "authorization",
    "idempotency-key",
    "x-explain",
    "content-type",  # JSON is the only type that a GET may have
)
_FROM_HERE = ("same-origin", "none")
_BROWSER_HEADERS = ("sec-fetch-site", "origin", "referer", "cookie")


def check_get(headers: Mapping[str, str], allowed_origins: Collection[str] = ()) -> None:
    """Raise `Refused` for a GET that a page of another site may have sent. `allowed_origins` are canonical."""
    if any(headers.get(name) for name in PREFLIGHTED):
        return
    if headers.get("sec-fetch-site") in _FROM_HERE or canonical_origin(headers.get("origin", "")) in allowed_origins:
        return
    if _is_browser(headers):
        message = (
            f"A page of another site may have sent this GET. Add the header {PREFLIGHTED[0]}: true, or send a POST."
        )
        raise Refused(403, Forbidden(message))


def _is_browser(headers: Mapping[str, str]) -> bool:
    """Return whether a browser sent the request.

    Every browser is Mozilla/5.0, which pages cannot change without preflight.
    """
    return any(name in headers for name in _BROWSER_HEADERS) or headers.get("user-agent", "").startswith("Mozilla/")
