"""Which object store goes with which tables."""

from collections.abc import Callable, Iterable

from datastore.database import StoreOptions
from datastore.objects import ObjectStore
from datastore.objects.local import LocalObjects
from datastore.objects.none import NoObjects
from datastore.objects.s3 import S3Objects

LOCAL_FOLDER = "objects"


def object_store(
    options: StoreOptions,
    *,
    bucket: str | None,
    s3_url: str | None,
    secret: bytes,
    base_url: Callable[[], str],
    others: Iterable[bytes] = (),
) -> ObjectStore:
    """A bucket wherever one is named; else a folder beside the data on this machine. For tables in AWS without a bucket
    there is no place for files.
    """
    if bucket is not None:
        return S3Objects(bucket, region=options.region or options.named_region, url=s3_url)
    if options.aws:
        return NoObjects()
    kept = options.data_dir is not None and not options.memory
    folder = options.data_dir / LOCAL_FOLDER if options.data_dir and kept else None
    return LocalObjects(folder, secret, base_url, others)
