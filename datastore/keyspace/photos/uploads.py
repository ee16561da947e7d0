"""Upload reservations, and the outbox of files to delete."""

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
    """Return the id of the photo in a reservation's key."""
    return split(key.partition)[1]


def outbox_entry(image_id: str) -> Key:
    key = join(REMOVAL, image_id)
    return Key(key, key)


def outbox_entry_parts(key: Key) -> str:
    """Return the id of the photo in an outbox entry's key."""
    return split(key.partition)[1]


CREATE_PHOTO = AccessPattern(
    id="SPARKS-W1",
    question="Reserve the upload of a photo within the user's limit",
    table=SPARKS,
    # A photo with a client-generated id is queried first. At the limit, the user's expired reservations are queried and
    # released. If the user's number of photos is not stored yet, the photos are counted.
    operations=("GetItem", "BatchGetItem", "Query", "UpdateItem", "TransactWriteItems", "DeleteItem"),
    transacts=("Put", "Update", "ConditionCheck"),
    who=Who.USER,
    fields=("createPhoto",),
    condition="attribute_exists(PK) AND uploadCount < uploadLimit",
    update="SET uploadCount = uploadCount + :one",
)
COMPLETE_PHOTO = AccessPattern(
    id="SPARKS-W1",
    question="Complete an upload, which adds the photo to the library; a repeat changes nothing",
    table=SPARKS,
    # If the upload was completed before, the photo is returned, and a second reservation of its id is released. The
    # keys of its files are recorded before the files are written.
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
    question="Cancel an upload that is not completed, which releases its reservation",
    table=SPARKS,
    # The reservation is read first, and the photo: if it exists, its files are kept.
    operations=("GetItem", "BatchGetItem", "Query", "TransactWriteItems", "DeleteItem"),
    transacts=("Update", "Delete"),
    who=Who.USER,
    fields=("cancelUpload",),
    # Also that its files are unchanged since they were read: a concurrent completion adds some.
    condition="attribute_exists(PK) AND email = :me",
    key="PK = UPLOAD#<imageId>, SK = UPLOAD#<imageId>",
    consistent=True,
)
RECEIVE_FILE = AccessPattern(
    id="SPARKS-P1",
    question="Whether the upload of an arriving file is still reserved",
    table=SPARKS,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = UPLOAD#<imageId>, SK = UPLOAD#<imageId>",
    consistent=True,
)
RESERVATIONS_OF_USER = AccessPattern(
    id="SPARKS-P1",
    question="The upload reservations of a user, oldest first",
    table=SPARKS,
    operations=("Query",),
    who=Who.INTERNAL,
    index=BY_EMAIL,
    key="email = :partition AND begins_with(PK, :prefix)",
)
COUNT_PHOTOS = AccessPattern(
    id="SPARKS-P1",
    question="The number of a user's photos, if it is not stored yet",
    table=SPARKS,
    operations=("Query",),
    who=Who.INTERNAL,
    index=BY_EMAIL,
    key="email = :partition AND begins_with(PK, :prefix)",
    projection="COUNT",
)
START_COUNT = AccessPattern(
    id="SPARKS-P1",
    question="Start to store the number of a user's photos",
    table=SPARKS,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    # Other programs may write an absent attribute as null.
    condition="attribute_exists(PK) AND (attribute_not_exists(uploadCount) OR attribute_type(uploadCount, :null))",
    update="SET uploadCount = :count, uploadLimit = if_not_exists(uploadLimit, :limit)",
)
SET_LIMIT = AccessPattern(
    id="SPARKS-P1",
    question="Set the limit of a user's photos, if none is set",
    table=SPARKS,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(PK) AND (attribute_not_exists(uploadLimit) OR attribute_type(uploadLimit, :null))",
    update="SET uploadLimit = :limit",
)
RESERVATIONS = AccessPattern(
    id="SPARKS-P1",
    question="All upload reservations, oldest first",
    table=SPARKS,
    operations=("Query",),
    who=Who.INTERNAL,
    index=BY_TYPE,
    key="entityType = :partition",
)
OUTBOX = AccessPattern(
    id="SPARKS-P1",
    question="The outbox of files to delete",
    table=SPARKS,
    operations=("Query",),
    who=Who.INTERNAL,
    index=BY_TYPE,
    key="entityType = :partition",
)
RELEASE = AccessPattern(
    id="SPARKS-P1",
    question="Release an expired reservation, and delete its files",
    table=SPARKS,
    # The reservation, which holds the keys of its files, and the photo are read first.
    operations=("GetItem", "BatchGetItem", "Query", "TransactWriteItems", "DeleteItem"),
    transacts=("Update", "Delete"),
    who=Who.INTERNAL,
    condition="attribute_exists(PK) AND expires <= :now",
    consistent=True,
)
DELETE_OUTBOX_ENTRY = AccessPattern(
    id="SPARKS-P1",
    question="Delete an outbox entry whose files are deleted",
    table=SPARKS,
    # The entry is read first: the list may be outdated.
    operations=("GetItem", "DeleteItem"),
    who=Who.INTERNAL,
    # Another entry of the same photo may have replaced it.
    condition="objectKeys = :keys",
    consistent=True,
)
# The update that creates an outbox entry, or adds files to it.
RECORD_OBJECTS = (
    "SET entityType = :type, imageId = :id, createdAt = :at, "
    "objectKeys = list_append(if_not_exists(objectKeys, :none), :keys)"
)
# The conditions of the further items of these transactions.
NOT_EXISTS = "attribute_not_exists(PK)"
IS_OWN_UPLOAD = CANCEL_UPLOAD.condition
# The reservation's files are unchanged since they were read: a concurrent completion adds files, which must not be
# lost with the reservation.
SAME_OBJECTS = "objectKeys = :known"
# The update of the user, in the transaction that deletes a reservation or photo.
DECREMENT_UPLOAD_COUNT = "SET uploadCount = uploadCount - :one"
HAS_UPLOADS = "attribute_exists(PK) AND uploadCount >= :one"

PATTERNS = (
    CREATE_PHOTO,
    COMPLETE_PHOTO,
    CANCEL_UPLOAD,
    RECEIVE_FILE,
    RESERVATIONS_OF_USER,
    COUNT_PHOTOS,
    START_COUNT,
    SET_LIMIT,
    RESERVATIONS,
    OUTBOX,
    RELEASE,
    DELETE_OUTBOX_ENTRY,
)
