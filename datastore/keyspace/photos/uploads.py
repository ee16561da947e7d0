"""What is on its way into the library, and out of it: reservations of uploads, and files that are to be removed."""

from datastore.keyspace.photos.table import BY_EMAIL, BY_TYPE, SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key, join, split

TYPE = "UPLOAD"
PREFIX = "UPLOAD#"
REMOVAL = "REMOVAL"


def upload(image_id: str) -> Key:
    key = join(TYPE, image_id)
    return Key(key, key)


def upload_parts(key: Key) -> str:
    """The id of the photo that a reservation is for."""
    return split(key.partition)[1]


def removal(image_id: str) -> Key:
    key = join(REMOVAL, image_id)
    return Key(key, key)


def removal_parts(key: Key) -> str:
    """The id of the photo whose files are to be removed."""
    return split(key.partition)[1]


CREATE_PHOTO = AccessPattern(
    id="SPARKS-W1",
    question="Reserve a place for a photo, within the user's limit, and say where to upload it",
    table=SPARKS,
    # A photo with an id of the client's own is looked for before. At the limit, the user's reservations that have
    # expired are found and released; the photos of a user whose count is not kept yet are counted.
    operations=("GetItem", "BatchGetItem", "Query", "UpdateItem", "TransactWriteItems", "DeleteItem"),
    transacts=("Put", "Update", "ConditionCheck"),
    who=Who.USER,
    fields=("createPhoto",),
    condition="attribute_exists(PK) AND uploadCount < uploadLimit",
    update="SET uploadCount = uploadCount + :one",
)
COMPLETE_PHOTO = AccessPattern(
    id="SPARKS-W1",
    question="Confirm an upload: the photo is in the library from now on; asked for again, it changes nothing",
    table=SPARKS,
    # Of one that is confirmed already the photo is answered, and a place that its id took again is given back, its
    # files noted. Where its files will be is noted before they are written.
    operations=("GetItem", "BatchGetItem", "Query", "UpdateItem", "TransactWriteItems"),
    transacts=("Put", "Delete"),
    who=Who.USER,
    fields=("completePhoto",),
    condition="attribute_exists(PK) AND email = :me AND expires > :now",
    update="ADD objectKeys :keys",
    key="PK = UPLOAD#<imageId>, SK = UPLOAD#<imageId>",
    consistent=True,
)
CANCEL_UPLOAD = AccessPattern(
    id="SPARKS-W1",
    question="Give up an upload that is not confirmed: its place is free at once",
    table=SPARKS,
    # The reservation is read before, and the photo that may have come of it: its files stay.
    operations=("GetItem", "BatchGetItem", "Query", "TransactWriteItems", "DeleteItem"),
    transacts=("Update", "Delete"),
    who=Who.USER,
    fields=("cancelUpload",),
    # And that it has the files still that were read: a confirmation at the same time adds some.
    condition="attribute_exists(PK) AND email = :me",
    key="PK = UPLOAD#<imageId>, SK = UPLOAD#<imageId>",
    consistent=True,
)
RECEIVE_FILE = AccessPattern(
    id="SPARKS-P1",
    question="Whether the place is still reserved for which a file arrives",
    table=SPARKS,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = UPLOAD#<imageId>, SK = UPLOAD#<imageId>",
    consistent=True,
)
UPLOADS_OF_USER = AccessPattern(
    id="SPARKS-P1",
    question="The reservations of a user, the oldest first",
    table=SPARKS,
    operations=("Query",),
    who=Who.INTERNAL,
    index=BY_EMAIL,
    key="email = :partition AND begins_with(PK, :prefix)",
)
COUNT_PHOTOS = AccessPattern(
    id="SPARKS-P1",
    question="How many photos a user has, where that is not kept yet",
    table=SPARKS,
    operations=("Query",),
    who=Who.INTERNAL,
    index=BY_EMAIL,
    key="email = :partition AND begins_with(PK, :prefix)",
    projection="COUNT",
)
BEGIN_COUNTING = AccessPattern(
    id="SPARKS-P1",
    question="Keep from now on how many photos a user has",
    table=SPARKS,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    # Others write an attribute that is not there as null, too.
    condition="attribute_exists(PK) AND (attribute_not_exists(uploadCount) OR attribute_type(uploadCount, :null))",
    update="SET uploadCount = :count, uploadLimit = if_not_exists(uploadLimit, :limit)",
)
BEGIN_LIMITING = AccessPattern(
    id="SPARKS-P1",
    question="Say how many photos a user may have, where nobody has",
    table=SPARKS,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(PK) AND (attribute_not_exists(uploadLimit) OR attribute_type(uploadLimit, :null))",
    update="SET uploadLimit = :limit",
)
UPLOADS = AccessPattern(
    id="SPARKS-P1",
    question="All reservations, the oldest first",
    table=SPARKS,
    operations=("Query",),
    who=Who.INTERNAL,
    index=BY_TYPE,
    key="entityType = :partition",
)
REMOVALS = AccessPattern(
    id="SPARKS-P1",
    question="The files of deleted photos that are still to be removed",
    table=SPARKS,
    operations=("Query",),
    who=Who.INTERNAL,
    index=BY_TYPE,
    key="entityType = :partition",
)
RELEASE = AccessPattern(
    id="SPARKS-P1",
    question="Give a place back whose upload was never confirmed, and remove its files",
    table=SPARKS,
    # The reservation is read before, which knows its files, and the photo is, if one came of it after all.
    operations=("GetItem", "BatchGetItem", "Query", "TransactWriteItems", "DeleteItem"),
    transacts=("Update", "Delete"),
    who=Who.INTERNAL,
    condition="attribute_exists(PK) AND expires <= :now",
    consistent=True,
)
REMOVED = AccessPattern(
    id="SPARKS-P1",
    question="Note that the files of a deleted photo are gone",
    table=SPARKS,
    # Of what the list shows it is read before whether it is still to be done.
    operations=("GetItem", "DeleteItem"),
    who=Who.INTERNAL,
    # Another note of the same photo may have come in its place.
    condition="objectKeys = :keys",
    consistent=True,
)
# The note itself, or what it tells beside what it told.
NOTE = (
    "SET entityType = :type, imageId = :id, createdAt = :at, "
    "objectKeys = list_append(if_not_exists(objectKeys, :none), :keys)"
)
# What the other items of these transactions must not be: there.
ABSENT = "attribute_not_exists(PK)"
# And what one gives up must be: one's own.
OWN = CANCEL_UPLOAD.condition
# A reservation that is confirmed knows the files that were read, and no others: those of who confirms it at the same
# time would be forgotten with it.
KNOWS = "objectKeys = :known"
# What gives a user's place back, in a transaction with what held it.
GIVE_BACK = "SET uploadCount = uploadCount - :one"
HAS_ONE = "attribute_exists(PK) AND uploadCount >= :one"

PATTERNS = (
    CREATE_PHOTO,
    COMPLETE_PHOTO,
    CANCEL_UPLOAD,
    RECEIVE_FILE,
    UPLOADS_OF_USER,
    COUNT_PHOTOS,
    BEGIN_COUNTING,
    BEGIN_LIMITING,
    UPLOADS,
    REMOVALS,
    RELEASE,
    REMOVED,
)
