"""GraphQL types and fields of the caller."""

import strawberry

from datastore.keyspace import sightings as patterns
from datastore.keyspace.feeds import home_feeds, notifications, users
from datastore.keyspace.matches import devices, live_activities
from datastore.keyspace.photos import users as photo_users
from datastore.model.identity import Role
from resolvers import me as resolve
from resolvers.feeds import home_feeds as resolve_home_feeds
from resolvers.feeds import notifications as resolve_notifications
from resolvers.feeds import users as resolve_users
from resolvers.matches import devices as resolve_devices
from resolvers.matches import live_activities as resolve_live_activities
from resolvers.photos import users as resolve_photo_users
from resolvers.sightings import sightings as resolve_sightings
from schema.connections import Connection
from schema.feeds.home_feeds import HOME_FEED_EXTENT, FeedEntry
from schema.feeds.notifications import Notification
from schema.feeds.users import User
from schema.fields import described, pattern_field
from schema.matches.devices import Device
from schema.matches.live_activities import LiveActivity
from schema.nodes import object_type
from schema.photos.users import PhotoUser
from schema.sightings import WATCHES_EXTENT, UserProfile, Watch

strawberry.enum(
    Role,
    description="The role that a token gives its caller. USER: a person. ADMIN: an administrator. SYSTEM: a service, "
    "such as a job. No role includes another, but admins and the system may read what a user may read, except the data "
    "of an owner alone.",
)


@object_type("user_id", description="The caller, according to the token.")
class Me:
    user_id: strawberry.ID = described("The caller's id: the `sub` of the token.")
    role: Role = described("The caller's role.")
    email: str | None = described("The caller's email address; null unless the token says that it is verified.")
    user_profile = pattern_field(
        patterns.USER_PROFILE,
        resolver=resolve.user_profile,
        graphql_type=UserProfile | None,
        description="The caller's profile as a reporter of sightings; null before the first report.",
    )
    user = pattern_field(
        users.USER,
        resolver=resolve_users.me,
        graphql_type=User | None,
        description="The caller's user in the feed; null before `createUser`.",
    )
    home_feed = pattern_field(
        home_feeds.HOME_FEED,
        resolver=resolve_home_feeds.my_home_feed,
        graphql_type=Connection[FeedEntry],
        extent=HOME_FEED_EXTENT,
        description="The caller's home feed, newest first: the posts of the followed users since the caller follows "
        "them.",
    )
    notifications = pattern_field(
        notifications.UNREAD,
        resolver=resolve_notifications.my_notifications,
        graphql_type=Connection[Notification],
        description="The caller's unread notifications, newest first.",
    )
    watches = pattern_field(
        patterns.WATCHES_OF_USER,
        resolver=resolve_sightings.my_watches,
        graphql_type=list[Watch],
        extent=WATCHES_EXTENT,
        description="The caller's watches, in the order of area and category: at most one for each area and category.",
    )
    photo_user = pattern_field(
        photo_users.PHOTO_USER,
        resolver=resolve_photo_users.me,
        graphql_type=PhotoUser | None,
        description="The caller's user in the photo library; null before `createPhotoUser`, or without a verified "
        "email address.",
    )
    device = pattern_field(
        devices.DEVICE_OF_USER,
        resolver=resolve_devices.my_device,
        graphql_type=Device | None,
        description="The caller's device for push notifications; null before `registerDevice`.",
    )
    live_activities = pattern_field(
        live_activities.ACTIVITIES_OF_USER,
        resolver=resolve_live_activities.my_live_activities,
        graphql_type=Connection[LiveActivity],
        description="The caller's Live Activity sessions, unordered.",
    )


@strawberry.type
class MeQueries:
    me = strawberry.field(
        resolver=resolve.me, graphql_type=Me | None, description="Return the caller; null without a token."
    )
