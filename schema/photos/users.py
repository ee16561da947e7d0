"""What the API says about those who upload photos: the shape only."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from datastore.keyspace.photos import photos as library_patterns
from datastore.keyspace.photos import users as patterns
from datastore.photos import users as records
from resolvers.photos import photos as resolve_library
from resolvers.photos import users as resolve
from resolvers.shared import node_ids as nodes
from schema.connections import Connection, Node
from schema.fields import VERSION, ask

if TYPE_CHECKING:
    from schema.photos.photos import Photo

LazyPhoto = Annotated["Photo", strawberry.lazy("schema.photos.photos")]


@strawberry.type(description="Somebody who uploads photos. Their email is for themselves and for admins to see.")
class PhotoUser(Node):
    id = strawberry.field(resolver=nodes.photo_user_id, graphql_type=strawberry.ID, description="Globally unique.")
    user_id = strawberry.field(
        resolver=resolve.user_id,
        graphql_type=strawberry.ID,
        description="Stands for the email, untold.",
    )
    email = strawberry.field(
        resolver=resolve.email, graphql_type=str | None, description="Null for others than the user and admins."
    )
    display_name: str = strawberry.field(description="The name they go by.")
    upload_limit: int = strawberry.field(description="How many photos they may have.")
    upload_count: int | None = strawberry.field(
        description="How many they have, uploads on their way included; null where that is not counted yet."
    )
    created_at: datetime = strawberry.field(description="When they entered the library.")
    version: int = strawberry.field(description=VERSION)
    photos = ask(
        library_patterns.PHOTOS_BY_USER,
        resolver=resolve_library.photos_of_user,
        graphql_type=Connection[LazyPhoto],
        description="Their photos, the newest upload first.",
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, records.PhotoUser)


@strawberry.type
class PhotoUserQueries:
    photo_user = ask(
        patterns.PHOTO_USER,
        patterns.PHOTO_USER_BY_EMAIL,
        resolver=resolve.photo_user,
        graphql_type=PhotoUser | None,
        description="A user of the photo library, or null: by `userId` for anybody, by `email` for that user and "
        "admins.",
    )
    photo_users = ask(
        patterns.PHOTO_USERS,
        resolver=resolve.photo_users,
        graphql_type=Connection[PhotoUser],
        description="All users of the photo library, by email.",
    )


@strawberry.type
class PhotoUserMutations:
    create_photo_user = ask(
        patterns.CREATE_PHOTO_USER,
        resolver=resolve.create_photo_user,
        graphql_type=PhotoUser,
        description="Enter the photo library, before one uploads. Asked for again, it answers the user there is and "
        "changes nothing.",
    )
    update_photo_user = ask(
        patterns.UPDATE_PHOTO_USER,
        resolver=resolve.update_photo_user,
        graphql_type=PhotoUser,
        description="Change one's name, or, for admins, how many photos somebody may have.",
    )
