"""Cross-site request forgery: no page of another site gets a browser to ask here in its user's place.

Before a page of another site may send more than a simple request, its browser asks the server (a CORS preflight), and
the answer is no. A POST is never simple here: its body has to be JSON. A GET is taken when it cannot be simple either,
when the browser says that it comes from this site, or when there is no browser.

https://fetch.spec.whatwg.org/#cors-safelisted-request-header · https://w3c.github.io/webappsec-fetch-metadata/
"""

from collections.abc import Collection, Mapping

from datastore.errors import Forbidden
from server.http.refusals import Refused
from server.security.origins import canonical_origin

# With one of these a browser asks first. The first is what Apollo's clients and their documentation call for.
ASKED_FIRST = (
    "apollo-require-preflight",
    "x-apollo-operation-name",
    "x-graphql-require-preflight",
    "authorization",
    "idempotency-key",
    "x-explain",
    "content-type",  # which of a GET may only be JSON
)
_FROM_HERE = ("same-origin", "none")
_TELLS_OF_A_BROWSER = ("sec-fetch-site", "origin", "referer", "cookie")


def check_get(headers: Mapping[str, str], allowed_origins: Collection[str] = ()) -> None:
    """Refuse a GET that a page of another site may have made. `allowed_origins` are canonical."""
    if any(headers.get(name) for name in ASKED_FIRST):
        return
    if headers.get("sec-fetch-site") in _FROM_HERE or canonical_origin(headers.get("origin", "")) in allowed_origins:
        return
    if _is_browser(headers):
        message = (
            "A page of another site may have made this GET. Send it with the header "
            f"{ASKED_FIRST[0]}: true, or send a POST."
        )
        raise Refused(403, Forbidden(message))


def _is_browser(headers: Mapping[str, str]) -> bool:
    """Every browser calls itself Mozilla/5.0, and no page can make it call itself otherwise without asking first."""
    return any(name in headers for name in _TELLS_OF_A_BROWSER) or headers.get("user-agent", "").startswith("Mozilla/")
