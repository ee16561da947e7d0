"""What the API says about the caller."""

import strawberry

from datastore.keyspace import sightings as patterns
from datastore.keyspace.feeds import users
from datastore.keyspace.matches import devices, live_activities
from datastore.keyspace.photos import users as photo_users
from datastore.model.identity import Role
from resolvers import me as resolve
from resolvers.feeds import users as resolve_users
from resolvers.matches import devices as resolve_devices
from resolvers.matches import live_activities as resolve_live_activities
from resolvers.photos import users as resolve_photo_users
from schema.connections import Connection
from schema.feeds.users import User
from schema.fields import ask
from schema.matches.devices import Device
from schema.matches.live_activities import LiveActivity
from schema.photos.users import PhotoUser
from schema.sightings import UserProfile

strawberry.enum(Role, description="What a token makes its bearer.")


@strawberry.type(description="The caller, as the token says.")
class Me:
    user_id: strawberry.ID = strawberry.field(description="The `sub` of the token.")
    role: Role = strawberry.field(description="What the caller may do.")
    email: str | None = strawberry.field(description="The caller's email, if the token says that it is verified.")
    profile = ask(
        patterns.USER_PROFILE,
        resolver=resolve.profile,
        graphql_type=UserProfile | None,
        description="The caller's profile as a reporter of sightings.",
    )
    user = ask(
        users.USER,
        resolver=resolve_users.me,
        graphql_type=User | None,
        description="The caller in the feed; null before `createUser`.",
    )
    photo_user = ask(
        photo_users.PHOTO_USER,
        resolver=resolve_photo_users.me,
        graphql_type=PhotoUser | None,
        description="The caller in the photo library; null before `createPhotoUser`, or without a verified email.",
    )
    device = ask(
        devices.DEVICE_OF_USER,
        resolver=resolve_devices.my_device,
        graphql_type=Device | None,
        description="The caller's device for push notifications.",
    )
    live_activities = ask(
        live_activities.ACTIVITIES_OF_USER,
        resolver=resolve_live_activities.my_live_activities,
        graphql_type=Connection[LiveActivity],
        description="The caller's sessions of Live Activities, in no particular order.",
    )


@strawberry.type
class MeQueries:
    me = strawberry.field(resolver=resolve.me, graphql_type=Me | None, description="The caller; null if not signed in.")
