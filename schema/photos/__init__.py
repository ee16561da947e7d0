"""GraphQL types and fields of the photo library: a module for each entity."""

from schema.photos.events import PhotoEventMutations
from schema.photos.faces import AppearanceQueries, Face, TaggingMutations
from schema.photos.livestreams import Livestream, LivestreamMutations, LivestreamQueries, LivestreamSubscriptions
from schema.photos.persons import Person, PersonMutations, PersonQueries
from schema.photos.photos import EditingMutations, LibraryQueries, Photo
from schema.photos.uploads import UploadMutations
from schema.photos.users import PhotoUser, PhotoUserMutations, PhotoUserQueries
from schema.systems import System

SYSTEM = System(
    queries=(PhotoUserQueries, LibraryQueries, PersonQueries, AppearanceQueries, LivestreamQueries),
    mutations=(
        PhotoUserMutations,
        UploadMutations,
        EditingMutations,
        PersonMutations,
        TaggingMutations,
        LivestreamMutations,
        PhotoEventMutations,
    ),
    subscriptions=(LivestreamSubscriptions,),
    nodes=(PhotoUser, Photo, Person, Face, Livestream),
)
