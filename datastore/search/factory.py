"""The factory of the search index: OpenSearch at a URL, or a file beside the local data."""

import os
import tempfile
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from datastore.database import StoreOptions
from datastore.search import NoIndex, SearchIndex
from datastore.search.sqlite_index import SqliteIndex

SHARED_MEMORY = Path("/dev/shm")


def check_search_url(url: str) -> None:
    """Raise `ValueError` for a URL that cannot name a search host. The message contains no password."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
        _ = parts.port
    except ValueError:
        fits = False
    if not fits:
        raise ValueError("must be an http(s) URL such as https://user:password@search.example.com:9200")
    if bool(parts.username) is not bool(parts.password):
        raise ValueError("must hold both a user and a password, or neither")


def search_index(store: StoreOptions, url: str | None) -> SearchIndex:
    """Return the index. Without a URL, tables on AWS have no index: several hosts cannot share a file."""
    if url is not None:
        from datastore.search.opensearch_index import OpenSearchIndex  # imported only if it is used

        return OpenSearchIndex(url, store.prefix)
    if store.in_aws:
        return NoIndex()
    name = f"{store.prefix}feed.sqlite"
    if store.data_dir is None:
        folder = Path(tempfile.gettempdir()) / f"gateway-search-{uuid4().hex}"
        return SqliteIndex(folder / name, temporary=True)
    folder = _in_memory(store.data_dir) if store.memory else store.data_dir / "search"
    return SqliteIndex(folder / name)


def _in_memory(data_dir: Path) -> Path:
    """Return a folder in memory that processes with the same data directory share."""
    owner = f"{os.getuid() if hasattr(os, 'getuid') else ''} {data_dir.resolve()}"
    root = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    return root / f"gateway-search-{sha256(owner.encode()).hexdigest()[:16]}"
