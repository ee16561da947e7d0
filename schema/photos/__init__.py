"""GraphQL types and fields of the photo library: a module for each entity."""

import strawberry

from schema.photos.events import PhotoEventMutations
from schema.photos.face_tags import TaggingMutations
from schema.photos.faces import Face
from schema.photos.livestreams import Livestream, LivestreamMutations, LivestreamQueries, LivestreamSubscriptions
from schema.photos.person_photos import AppearanceQueries
from schema.photos.persons import Person, PersonMutations, PersonQueries
from schema.photos.photos import LibraryQueries, Photo
from schema.photos.update_photo import EditingMutations
from schema.photos.uploads import UploadMutations
from schema.photos.users import PhotoUser, PhotoUserMutations, PhotoUserQueries

NODES = [Face, Livestream, Person, Photo, PhotoUser]


@strawberry.type
class PhotoQueries(PhotoUserQueries, LibraryQueries, PersonQueries, AppearanceQueries, LivestreamQueries):
    pass


@strawberry.type
class PhotoMutations(
    PhotoUserMutations,
    UploadMutations,
    EditingMutations,
    PersonMutations,
    TaggingMutations,
    LivestreamMutations,
    PhotoEventMutations,
):
    pass


@strawberry.type
class PhotoSubscriptions(LivestreamSubscriptions):
    pass
