"""An order of all mutations in which each finds the items that it needs."""

import re

from graphql import GraphQLObjectType

import schema as api
from datastore.database import Database
from tests.support import photo_contract
from tests.support.served import Served

MUTATION: GraphQLObjectType = api.build()._schema.mutation_type  # type: ignore[assignment]
# Mutations that delete come last, except those that another mutation would make impossible.
FIRST = ("cancelUpload", "completePhoto", "updatePushToStartToken", "deleteDevice", "deleteActiveMatch")
LAST = (
    "endLiveActivity",
    "unfollowMatch",
    "archiveFixture",
    "deactivateMatch",
    "mergePersons",
    "untagFace",
    "deletePhoto",
)
TAKING_AWAY = re.compile("delete|un[a-z]+[A-Z]|unfollow$|remove")


def _place(name: str) -> tuple[int, int]:
    if name in FIRST:
        return 0, FIRST.index(name)
    return (3, LAST.index(name)) if name in LAST else (2 if TAKING_AWAY.match(name) else 1, 0)


PHOTOS = sorted((name for name in MUTATION.fields if name in photo_contract.ASK), key=_place)
OTHERS = sorted((name for name in MUTATION.fields if name not in photo_contract.ASK), key=_place)


def database_of(served: Served) -> Database:
    assert served.gateway.database is not None
    return served.gateway.database
