"""The photo library in the API: a module for each kind of thing, joined here."""

import strawberry

from schema.photos.appearances import AppearanceQueries
from schema.photos.editing import EditingMutations
from schema.photos.events import PhotoEventMutations
from schema.photos.faces import Face
from schema.photos.library import LibraryQueries, Photo
from schema.photos.livestreams import Livestream, LivestreamMutations, LivestreamQueries, LivestreamSubscriptions
from schema.photos.persons import Person, PersonMutations, PersonQueries
from schema.photos.tagging import TaggingMutations
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
