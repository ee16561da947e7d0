"""Faces: `FACE#<id>` / `IMAGE#<imageId>`: one person's in one photo. `photoSK` is the rest of the photo's key."""

from dataclasses import replace

from datastore.keyspace.photos.table import BY_PERSON, SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split

TYPE = "FACE"
PREFIX = "FACE#"


def partition(face_id: str) -> str:
    return join(TYPE, face_id)


def face(face_id: str, image_id: str) -> Key:
    return Key(partition(face_id), on_photo(image_id))


def on_photo(image_id: str) -> str:
    """The sort key of all faces on a photo."""
    return join("IMAGE", image_id)


def face_parts(key: Key) -> tuple[str, str]:
    """The id of a face and that of its photo."""
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
FACE_NOW = replace(
    FACE,
    # One whose photo is not known is found by its id.
    operations=("GetItem", "BatchGetItem", "Query"),
    key="PK = :partition AND begins_with(SK, :prefix)",
    consistent=True,
    fields=(),
)
FACES_OF_OTHERS = AccessPattern(
    id="SPARKS-N3",
    question="The faces of a person whom a photo shows and lists no face of, as other programs write photos",
    table=SPARKS,
    operations=("Query",),
    who=Who.ANY,
    fields=("Photo.faces",),
    index=BY_PERSON,
    key="personId = :partition AND begins_with(PK, :prefix)",
    # Ids sort by time, as a rule: of very many faces those tagged last.
    descending=True,
)
PHOTOS_OF_PERSON = AccessPattern(
    id="SPARKS-7",
    question="The photos a person is on, each once, those tagged last first; with the person's faces in each",
    table=SPARKS,
    # The faces, and then their photos: a Query for each whose key an old face does not hold, and one over the faces
    # before the page (and after it) where photos do not list theirs.
    operations=("Query", "GetItem", "BatchGetItem"),
    who=Who.ANY,
    fields=("photosOfPerson", "Person.photos", "PersonPhotoEdge.faces"),
    index=BY_PERSON,
    key="personId = :partition AND begins_with(PK, :prefix)",
    descending=True,
)
TAG_FACE = AccessPattern(
    id="SPARKS-W1",
    question="Say who is where on one's photo",
    table=SPARKS,
    # The photo and the person are read before.
    operations=("GetItem", "BatchGetItem", "Query", "TransactWriteItems"),
    transacts=("Put", "Update"),
    who=Who.USER,
    fields=("tagFace",),
    condition="attribute_not_exists(PK)",
    consistent=True,
)
UNTAG_FACE = AccessPattern(
    id="SPARKS-W1",
    question="Take a face off one's photo (an admin: off any)",
    table=SPARKS,
    operations=("GetItem", "BatchGetItem", "Query", "TransactWriteItems"),
    transacts=("Update", "Delete", "ConditionCheck"),
    who=Who.USER,
    also=(Who.ADMIN,),
    fields=("untagFace",),
    condition="attribute_exists(PK) AND personId = :person",
    consistent=True,
)

PATTERNS = (FACE, FACE_NOW, FACES_OF_OTHERS, PHOTOS_OF_PERSON, TAG_FACE, UNTAG_FACE)
