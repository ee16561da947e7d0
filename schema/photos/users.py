"""GraphQL types and fields of users of the photo library."""

from datetime import datetime

import strawberry

from datastore.keyspace import sightings
from datastore.keyspace.feeds import users as feed_patterns
from datastore.keyspace.photos import photos as library_patterns
from datastore.keyspace.photos import users as patterns
from datastore.photos import users as records
from resolvers.photos import photos as resolve_library
from resolvers.photos import users as resolve
from schema.connections import Connection
from schema.feeds.lazy_types import LazyUser, LazyUserProfile
from schema.fields import VERSION_BESIDE_COUNTS, batch_field, described, pattern_field
from schema.nodes import Node, node_type
from schema.photos.lazy_types import LazyPhoto


@node_type(
    records.PhotoUser,
    patterns.PHOTO_USER,
    parts=("user_id",),
    id=resolve.global_user_id,
    read=resolve.photo_user_by_id,
    description="A user of the photo library. The email address is visible to the user and admins.",
)
class PhotoUser(Node):
    user_id = strawberry.field(
        resolver=resolve.user_id, graphql_type=strawberry.ID, description="The user's id: the encrypted email address."
    )
    email = strawberry.field(
        resolver=resolve.email,
        graphql_type=str | None,
        description="The email address. Visible to the user and admins; null for all other callers.",
    )
    display_name: str = described("The name, 1 to 100 characters.")
    upload_limit: int = described("The maximum number of photos of the user.")
    upload_count: int | None = described(
        "The number of photos of the user, including unconfirmed uploads; null until they are counted, at the next "
        "upload or deletion of a photo."
    )
    created_at: datetime = described("The time at which the user joined the library.")
    version: int = described(VERSION_BESIDE_COUNTS)
    user = batch_field(
        feed_patterns.USER,
        resolver=resolve.users_of_caller,
        depends_on="email",
        graphql_type=LazyUser | None,
        description="The same person as a user of the feed, for the caller's own photo user; null for all others, and "
        "before `createUser`. Only a token says which email address belongs to which user id.",
    )
    user_profile = batch_field(
        sightings.USER_PROFILE,
        resolver=resolve.profiles_of_caller,
        depends_on="email",
        graphql_type=LazyUserProfile | None,
        description="The same person as a reporter of sightings, for the caller's own photo user; null for all others, "
        "and before the first report.",
    )
    photos = pattern_field(
        library_patterns.PHOTOS_BY_USER,
        resolver=resolve_library.photos_of_user,
        graphql_type=Connection[LazyPhoto],
        description="The user's photos, newest upload first.",
    )


@strawberry.type
class PhotoUserQueries:
    photo_user = pattern_field(
        patterns.PHOTO_USER,
        patterns.PHOTO_USER_BY_EMAIL,
        resolver=resolve.photo_user,
        graphql_type=PhotoUser | None,
        description="Return a user of the photo library; null if there is none. Anyone may read a user by "
        "`id`; reading by `email` is for that user and admins.",
    )
    photo_users = pattern_field(
        patterns.PHOTO_USERS,
        resolver=resolve.photo_users,
        graphql_type=Connection[PhotoUser],
        description="Return all users of the photo library, by email address.",
    )


@strawberry.type
class PhotoUserMutations:
    create_photo_user = pattern_field(
        patterns.CREATE_PHOTO_USER,
        resolver=resolve.create_photo_user,
        graphql_type=PhotoUser,
        description="Join the photo library, which uploads require, and return the user. A repeated request "
        "returns the existing user and changes nothing. FORBIDDEN unless the caller's token has a verified email "
        "address; admins may name the email address of another user.",
    )
    update_photo_user = pattern_field(
        patterns.UPDATE_PHOTO_USER,
        resolver=resolve.update_photo_user,
        graphql_type=PhotoUser,
        description="Change the caller's name, and return the user. Admins may change any user's name and "
        "`uploadLimit`.",
    )
