"""The services that live as long as the process."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

from datastore.change_streams.change import ChangeParser
from datastore.change_streams.change_feed import ChangeFeed
from datastore.dynamodb.client import Client
from datastore.earthquakes.earthquakes import IngestSummary
from datastore.earthquakes.events import Earthquake, event_of
from datastore.earthquakes.request_logs import RequestLogs
from datastore.matches.live_state import ActiveMatch, active_match_from
from datastore.objects import ObjectStore
from datastore.photos.decoder import DecoderPool
from datastore.photos.encrypted_user_ids import UserIds
from datastore.search import SearchIndex
from datastore.session.cursors import Cursors
from datastore.session.scan_cache import ScanCache


@dataclass(frozen=True, slots=True)
class SightingPlaces:
    """The configured areas and categories of the sightings."""

    areas: tuple[str, ...]
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Services:
    """The services that resolvers use."""

    client: Client
    #: The prefix of the tables' names.
    prefix: str
    cursors: Cursors
    changes: ChangeFeed
    scan_cache: ScanCache
    request_logs: RequestLogs
    #: Ingests a USGS feed by name or URL.
    ingest: Callable[[str], Awaitable[IngestSummary]]
    places: SightingPlaces
    #: The clock. It is the only source of times.
    now: Callable[[], datetime]
    #: The source of random ids.
    new_id: Callable[[], str]
    user_ids: UserIds
    objects: ObjectStore
    search: SearchIndex
    #: The seconds after which an operation's calls to DynamoDB time out.
    deadline_seconds: float = 30.0
    #: Whether originals of photos are stored with their metadata.
    keeps_metadata: bool = False
    active_match_parser: ChangeParser[ActiveMatch] = field(default_factory=lambda: ChangeParser(active_match_from))
    earthquake_parser: ChangeParser[Earthquake | None] = field(default_factory=lambda: ChangeParser(event_of))
    decoder_pool: DecoderPool = field(default_factory=DecoderPool)
