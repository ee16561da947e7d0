"""Faces of persons on photos: `FACE#<id>` / `IMAGE#<imageId>`. `photoSK` is the sort key of the photo."""

from dataclasses import replace

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.photos.table import BY_PERSON, SPARKS
from datastore.model.access_patterns import GET, QUERY, TRANSACT, AccessPattern, Who
from datastore.model.composite_keys import Key, join, second_part

TYPE = "FACE"


@item_key(SPARKS)
def face(face_id: str, image_id: str) -> KeyParts:
    return (TYPE, face_id), ("IMAGE", image_id)


@item_key(SPARKS, index=BY_PERSON)
def face_of_person(person_id: str, face_id: str) -> KeyParts:
    return (person_id,), (TYPE, face_id)


def sort_key_of(image_id: str) -> str:
    """Return the sort key of all faces on a photo."""
    return join("IMAGE", image_id)


def face_parts(key: Key) -> tuple[str, str]:
    """Return the face id and the image id in a face's key. Other programs may write an id with an unescaped `#`."""
    return second_part(key.partition), second_part(key.sort)


FACE = face.read("SPARKS-N2", "A face on a photo", Who.ANY, ("Photo.faces", "PersonPhotoEdge.faces", "node", "nodes"))
# A face is queried by its id if its photo is unknown.
FACE_CONSISTENT = replace(
    FACE, operations=GET + QUERY, key="PK = :partition AND begins_with(SK, :prefix)", consistent=True, fields=()
)
UNLISTED_FACES = face_of_person.query(
    "SPARKS-N3",
    "The faces of a person who is in a photo's `persons` but has no listed face on it",
    Who.ANY,
    ("Photo.faces",),
    # Ids usually sort by time. At most 1,000 faces of a person are read: the last tagged ones.
    descending=True,
)
PHOTOS_BY_PERSON = face_of_person.query(
    "SPARKS-7",
    "The photos of a person, last tagged first, with the person's faces on each",
    Who.ANY,
    ("photosByPerson", "Person.photos", "PersonPhotoEdge.faces"),
    # The faces are read first, then their photos. More Queries: one for each photo whose faces have no `photoSK`; and
    # if a photo of the page lists no face of the person, one over the person's faces before the page and one over
    # those after it.
    operations=QUERY + GET,
    descending=True,
)
TAG_FACE = AccessPattern(
    "SPARKS-W1",
    "Tag a person's face on the caller's photo",
    SPARKS,
    # The photo and the person are read first.
    GET + QUERY + TRANSACT,
    Who.USER,
    ("tagFace",),
    transacts=("Put", "Update"),
    condition="attribute_not_exists(PK)",
    consistent=True,
)
UNTAG_FACE = AccessPattern(
    "SPARKS-W1",
    "Remove a face from the caller's photo; an admin may remove any face",
    SPARKS,
    GET + QUERY + TRANSACT,
    Who.USER,
    ("untagFace",),
    transacts=("Update", "Delete", "ConditionCheck"),
    also=(Who.ADMIN,),
    condition="attribute_exists(PK) AND personId = :person",
    consistent=True,
)
