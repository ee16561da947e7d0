"""`photos strip`: the removal of metadata from stored files, and its checkpoint."""

from datastore.keyspace.photos.table import BY_TYPE, SPARKS
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key

CHECKPOINT = Key("CHECKPOINT#photos-strip", "CHECKPOINT#photos-strip")

STORED_PHOTOS = AccessPattern(
    id="SPARKS-P1",
    question="All photos, in index order, to remove the metadata from their files",
    table=SPARKS,
    operations=("Query",),
    who=Who.INTERNAL,
    index=BY_TYPE,
    key="entityType = :partition",
)
DESCRIBE_FILE = AccessPattern(
    id="SPARKS-P1",
    question="Update the description of a photo's file, before and after its metadata is removed",
    table=SPARKS,
    operations=("UpdateItem",),
    who=Who.INTERNAL,
    condition="attribute_exists(PK) AND originalKey = :original",
    update="SET #file = :file",
)
STRIP_PROGRESS = AccessPattern(
    id="SPARKS-P1",
    question="The checkpoint of the removal of metadata",
    table=SPARKS,
    operations=("GetItem", "BatchGetItem"),
    who=Who.INTERNAL,
    key="PK = CHECKPOINT#photos-strip, SK = CHECKPOINT#photos-strip",
    consistent=True,
)
SAVE_STRIP_PROGRESS = AccessPattern(
    id="SPARKS-P1",
    question="Save the checkpoint of the removal of metadata",
    table=SPARKS,
    operations=("PutItem",),
    who=Who.INTERNAL,
)
END_STRIP_PROGRESS = AccessPattern(
    id="SPARKS-P1",
    question="Delete the checkpoint of the completed removal of metadata",
    table=SPARKS,
    operations=("DeleteItem",),
    who=Who.INTERNAL,
)

PATTERNS = (STORED_PHOTOS, DESCRIBE_FILE, STRIP_PROGRESS, SAVE_STRIP_PROGRESS, END_STRIP_PROGRESS)
