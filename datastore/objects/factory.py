"""The choice of the object store."""

from collections.abc import Callable, Iterable

from datastore.database import StoreOptions
from datastore.objects import NoObjects, ObjectStore
from datastore.objects.local import LocalObjects

LOCAL_FOLDER = "objects"


def object_store(
    options: StoreOptions,
    *,
    bucket: str | None,
    s3_url: str | None,
    secret: bytes,
    base_url: Callable[[], str],
    other_secrets: Iterable[bytes] = (),
) -> ObjectStore:
    """Return the bucket's store if a bucket is named, else a store in the data directory of this machine.

    For tables in AWS without a bucket, return a store that keeps no files.
    """
    if bucket is not None:
        # Imported late: boto3 is only loaded if there is a bucket.
        from datastore.objects.s3 import S3Objects

        return S3Objects(bucket, region=options.region or options.named_region, url=s3_url)
    if options.in_aws:
        return NoObjects()
    folder = options.data_dir / LOCAL_FOLDER if options.data_dir is not None and not options.memory else None
    return LocalObjects(folder, secret, base_url, other_secrets)
