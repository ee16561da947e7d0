"""Protection against cross-site request forgery: pages of other sites cannot send requests with a user's credentials.

Before a request of another site that is not simple a browser sends a preflight, which the gateway refuses unless the
origin is allowed. A POST is never simple, because its body must be JSON. A GET is accepted if it is not simple either,
if the browser states that it comes from this site or an allowed origin, or if no browser sent it.

https://fetch.spec.whatwg.org/#cors-safelisted-request-header · https://w3c.github.io/webappsec-fetch-metadata/
"""

from collections.abc import Collection, Mapping

from datastore.errors import Forbidden
from server.http.responses import Refused
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

    The User-Agent of every browser begins with Mozilla/, which pages cannot change without a preflight.
    """
    return any(name in headers for name in _BROWSER_HEADERS) or headers.get("user-agent", "").startswith("Mozilla/")
