"""Upload reservations, and the outbox of files to delete."""

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.photos.photos import photo_of_user
from datastore.keyspace.photos.table import BY_EMAIL, SPARKS, of_type
from datastore.keyspace.photos.users import user
from datastore.model.access_patterns import DELETE, GET, QUERY, TRANSACT, UPDATE, AccessPattern, Who

TYPE = "UPLOAD"
REMOVAL = "REMOVAL"


@item_key(SPARKS)
def upload(image_id: str) -> KeyParts:
    return (TYPE, image_id), (TYPE, image_id)


@item_key(SPARKS, index=BY_EMAIL)
def upload_of_user(email: str, image_id: str) -> KeyParts:
    return (email,), (TYPE, image_id)


@item_key(SPARKS)
def outbox_entry(image_id: str) -> KeyParts:
    return (REMOVAL, image_id), (REMOVAL, image_id)


CREATE_PHOTO = AccessPattern(
    "SPARKS-W1",
    "Reserve the upload of a photo within the user's limit",
    SPARKS,
    # A photo with a client-generated id is queried first. At the limit, the user's expired reservations are queried and
    # released. If the user's number of photos is not stored yet, the photos are counted.
    GET + QUERY + UPDATE + TRANSACT + DELETE,
    Who.USER,
    ("createPhoto",),
    transacts=("Put", "Update", "ConditionCheck"),
    condition="attribute_exists(PK) AND uploadCount < uploadLimit",
    update="SET uploadCount = uploadCount + :one",
)
COMPLETE_PHOTO = AccessPattern(
    "SPARKS-W1",
    "Complete an upload, which adds the photo to the library; a repeat changes nothing",
    SPARKS,
    # If the upload was completed before, the photo is returned, and a second reservation of its id is released. The
    # keys of its files are recorded before the files are written.
    GET + QUERY + UPDATE + TRANSACT,
    Who.USER,
    ("completePhoto",),
    transacts=("Put", "Delete"),
    condition="attribute_exists(PK) AND email = :me AND expires > :now",
    update="ADD objectKeys :keys",
    key=upload.documented,
    consistent=True,
)
CANCEL_PHOTO_UPLOAD = AccessPattern(
    "SPARKS-W1",
    "Cancel an upload that is not completed, which releases its reservation",
    SPARKS,
    # The reservation is read first, and the photo: if it exists, its files are kept.
    GET + QUERY + TRANSACT + DELETE,
    Who.USER,
    ("cancelPhotoUpload",),
    transacts=("Update", "Delete"),
    # Also that its files are unchanged since they were read: a concurrent completion adds some.
    condition="attribute_exists(PK) AND email = :me",
    key=upload.documented,
    consistent=True,
)
RECEIVE_FILE = upload.read("SPARKS-P1", "Whether the upload of an arriving file is still reserved", consistent=True)
RESERVATIONS_OF_USER = upload_of_user.query("SPARKS-P1", "The upload reservations of a user, oldest first")
COUNT_PHOTOS = photo_of_user.query(
    "SPARKS-P1", "The number of a user's photos, if it is not stored yet", projection="COUNT"
)
START_COUNT = user.update(
    "SPARKS-P1",
    "Start to store the number of a user's photos",
    # Other programs may write an absent attribute as null.
    condition="attribute_exists(PK) AND (attribute_not_exists(uploadCount) OR attribute_type(uploadCount, :null))",
    update="SET uploadCount = :count, uploadLimit = if_not_exists(uploadLimit, :limit)",
)
SET_LIMIT = user.update(
    "SPARKS-P1",
    "Set the limit of a user's photos, if none is set",
    condition="attribute_exists(PK) AND (attribute_not_exists(uploadLimit) OR attribute_type(uploadLimit, :null))",
    update="SET uploadLimit = :limit",
)
RESERVATIONS = of_type.query("SPARKS-P1", "All upload reservations, oldest first")
OUTBOX = of_type.query("SPARKS-P1", "The outbox of files to delete")
RELEASE = AccessPattern(
    "SPARKS-P1",
    "Release an expired reservation, and delete its files",
    SPARKS,
    # The reservation, which holds the keys of its files, and the photo are read first.
    GET + QUERY + TRANSACT + DELETE,
    transacts=("Update", "Delete"),
    condition="attribute_exists(PK) AND expires <= :now",
    consistent=True,
)
DELETE_OUTBOX_ENTRY = AccessPattern(
    "SPARKS-P1",
    "Delete an outbox entry whose files are deleted",
    SPARKS,
    # The entry is read first: the list may be outdated.
    ("GetItem", "DeleteItem"),
    # Another request may have added files to it meanwhile.
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
IS_OWN_UPLOAD = CANCEL_PHOTO_UPLOAD.condition
# The reservation's files are unchanged since they were read: a concurrent completion adds files, which must not be
# lost with the reservation.
SAME_OBJECTS = "objectKeys = :known"
# The update of the user, in the transaction that deletes a reservation or photo.
DECREMENT_UPLOAD_COUNT = "SET uploadCount = uploadCount - :one"
HAS_UPLOADS = "attribute_exists(PK) AND uploadCount >= :one"
