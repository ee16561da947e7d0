"""Types of the photo library that refer to each other: Strawberry resolves them once all modules are imported."""

from typing import TYPE_CHECKING, Annotated

import strawberry

if TYPE_CHECKING:
    from schema.photos.faces import Face, PersonPhotoConnection
    from schema.photos.persons import Person
    from schema.photos.photos import Photo

LazyFace = Annotated["Face", strawberry.lazy("schema.photos.faces")]
LazyPerson = Annotated["Person", strawberry.lazy("schema.photos.persons")]
LazyPersonPhotos = Annotated["PersonPhotoConnection", strawberry.lazy("schema.photos.faces")]
LazyPhoto = Annotated["Photo", strawberry.lazy("schema.photos.photos")]
