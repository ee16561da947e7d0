"""Documents for the tests of trusted documents."""

from server.admission.callers import Caller
from server.documents.persisted.manifest import sha256_of

AREAS = "query Areas { areas }"

CATEGORIES = "query Categories { categories }"

ANSWER = {"data": {"areas": ["Downtown", "Midtown", "Harbor", "Old Town", "University", "Riverside"]}}

HASH = sha256_of(AREAS)

NAMED = {"areas": AREAS}

ANYBODY = Caller(None)
