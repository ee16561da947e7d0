"""Faces of persons on photos: `FACE#<id>` / `IMAGE#<imageId>`. `photoSK` is the sort key of the photo."""

from dataclasses import replace

from datastore.keyspace.photos.table import BY_PERSON, SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split

TYPE = "FACE"
PREFIX = "FACE#"
SORT_PREFIX = "IMAGE#"


def partition(face_id: str) -> str:
    return join(TYPE, face_id)


def face(face_id: str, image_id: str) -> Key:
    return Key(partition(face_id), sort_key_of(image_id))


def sort_key_of(image_id: str) -> str:
    """Return the sort key of all faces on a photo."""
    return join("IMAGE", image_id)


def face_parts(key: Key) -> tuple[str, str]:
    """Return the face id and the image id in a face's key."""
    return split(key.partition)[1], split(key.sort)[1]


FACE = AccessPattern(
    id="SPARKS-N2",
    question="A face on a photo",
    table=SPARKS,
    operations=("GetItem", "BatchGetItem"),
    who=Who.ANY,
    fields=("Photo.faces", "PersonPhotoEdge.faces", "node", "nodes"),
    key="PK = FACE#<id>, SK = IMAGE#<imageId>",
)
FACE_CONSISTENT = replace(
    FACE,
    # A face is queried by its id if its photo is unknown.
    operations=("GetItem", "BatchGetItem", "Query"),
    key="PK = :partition AND begins_with(SK, :prefix)",
    consistent=True,
    fields=(),
)
UNLISTED_FACES = AccessPattern(
    id="SPARKS-N3",
    question="The faces of a person who is in a photo's `persons` but has no listed face on it",
    table=SPARKS,
    operations=("Query",),
    who=Who.ANY,
    fields=("Photo.faces",),
    index=BY_PERSON,
    key="personId = :partition AND begins_with(PK, :prefix)",
    # Ids usually sort by time. At most 1,000 faces of a person are read: the last tagged ones.
    descending=True,
)
PHOTOS_OF_PERSON = AccessPattern(
    id="SPARKS-7",
    question="The photos of a person, last tagged first, with the person's faces on each",
    table=SPARKS,
    # The faces are read first, then their photos. More Queries: one for each photo whose faces have no `photoSK`; and
    # if a photo of the page lists no face of the person, one over the person's faces before the page and one over
    # those after it.
    operations=("Query", "GetItem", "BatchGetItem"),
    who=Who.ANY,
    fields=("photosOfPerson", "Person.photos", "PersonPhotoEdge.faces"),
    index=BY_PERSON,
    key="personId = :partition AND begins_with(PK, :prefix)",
    descending=True,
)
TAG_FACE = AccessPattern(
    id="SPARKS-W1",
    question="Tag a person's face on the caller's photo",
    table=SPARKS,
    # The photo and the person are read first.
    operations=("GetItem", "BatchGetItem", "Query", "TransactWriteItems"),
    transacts=("Put", "Update"),
    who=Who.USER,
    fields=("tagFace",),
    condition="attribute_not_exists(PK)",
    consistent=True,
)
UNTAG_FACE = AccessPattern(
    id="SPARKS-W1",
    question="Remove a face from the caller's photo; an admin may remove any face",
    table=SPARKS,
    operations=("GetItem", "BatchGetItem", "Query", "TransactWriteItems"),
    transacts=("Update", "Delete", "ConditionCheck"),
    who=Who.USER,
    also=(Who.ADMIN,),
    fields=("untagFace",),
    condition="attribute_exists(PK) AND personId = :person",
    consistent=True,
)

PATTERNS = (FACE, FACE_CONSISTENT, UNLISTED_FACES, PHOTOS_OF_PERSON, TAG_FACE, UNTAG_FACE)
