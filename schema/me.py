"""What the API says about the caller."""

import strawberry

from datastore.keyspace import sightings as patterns
from resolvers import access
from resolvers import me as resolve
from schema.fields import ask
from schema.sightings import UserProfile

strawberry.enum(access.Role, description="What a token makes its bearer.")


@strawberry.type(description="The caller, as the token says.")
class Me:
    user_id: strawberry.ID = strawberry.field(description="The `sub` of the token.")
    role: access.Role = strawberry.field(description="What the caller may do.")
    email: str | None = strawberry.field(description="The caller's email, if the token says that it is verified.")
    profile = ask(
        patterns.USER_PROFILE,
        resolver=resolve.profile,
        graphql_type=UserProfile | None,
        description="The caller's profile as a reporter of sightings.",
    )


@strawberry.type
class MeQueries:
    me = strawberry.field(resolver=resolve.me, graphql_type=Me | None, description="The caller; null if not signed in.")
