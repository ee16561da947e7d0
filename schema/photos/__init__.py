"""The photo library in the API: a module for each kind of thing, joined here."""

import strawberry

from schema.photos.appearances import AppearanceQueries
from schema.photos.faces import Face
from schema.photos.library import LibraryQueries, Photo
from schema.photos.persons import Person, PersonQueries
from schema.photos.uploads import UploadMutations
from schema.photos.users import PhotoUser, PhotoUserMutations, PhotoUserQueries

NODES = [Face, Person, Photo, PhotoUser]


@strawberry.type
class PhotoQueries(PhotoUserQueries, LibraryQueries, PersonQueries, AppearanceQueries):
    pass


@strawberry.type
class PhotoMutations(PhotoUserMutations, UploadMutations):
    pass
