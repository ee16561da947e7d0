"""`photos strip`: the removal of metadata from stored files, and its checkpoint."""

from datastore.items.keys import KeyParts, item_key
from datastore.keyspace.photos.photos import photo
from datastore.keyspace.photos.table import SPARKS, of_type


@item_key(SPARKS)
def checkpoint() -> KeyParts:
    return ("CHECKPOINT", "photos-strip"), ("CHECKPOINT", "photos-strip")


STORED_PHOTOS = of_type.query("SPARKS-P1", "All photos, in index order, to remove the metadata from their files")
DESCRIBE_FILE = photo.update(
    "SPARKS-P1",
    "Update the description of a photo's file, before and after its metadata is removed",
    condition="attribute_exists(PK) AND originalKey = :original",
    update="SET #file = :file",
)
STRIP_PROGRESS = checkpoint.read("SPARKS-P1", "The checkpoint of the removal of metadata", consistent=True)
SAVE_STRIP_PROGRESS = checkpoint.put("SPARKS-P1", "Save the checkpoint of the removal of metadata")
END_STRIP_PROGRESS = checkpoint.delete("SPARKS-P1", "Delete the checkpoint of the completed removal of metadata")
