"""What a resolver is given: who asks, the moment it is, and the store, all fresh for each operation and each event."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar, overload
from weakref import WeakSet

import strawberry

from datastore.change_streams.change_feed import ChangeFeed
from datastore.change_streams.subscriptions.resume_position import SubscriptionProgress
from datastore.dynamodb.client import Client
from datastore.earthquakes.earthquakes import Earthquakes, IngestSummary
from datastore.earthquakes.request_logs import RequestLogs
from datastore.feeds.comments import Comments
from datastore.feeds.follows import Follows
from datastore.feeds.home_feeds import HomeFeeds
from datastore.feeds.leaderboards import Leaderboards
from datastore.feeds.likes import Likes
from datastore.feeds.notifications import Notifications
from datastore.feeds.posts import Posts
from datastore.feeds.searches import Searches
from datastore.feeds.users import Users
from datastore.feeds.visibility import Viewer, VisibilityPolicy
from datastore.matches.active_match_changes import ParsedMatches
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.devices import Devices
from datastore.matches.display_states import DisplayStates
from datastore.matches.fixture_cache import FixtureCache
from datastore.matches.fixtures import Fixtures
from datastore.matches.leagues import Leagues
from datastore.matches.live_activities import LiveActivities
from datastore.matches.match_follows import MatchFollows
from datastore.matches.team_seasons import TeamSeasons
from datastore.matches.teams import Teams
from datastore.model.identity import Identity, Role
from datastore.model.ids import IdSource
from datastore.objects import ObjectStore
from datastore.photos.decoder_pool import DecoderPool
from datastore.photos.encrypted_user_ids import UserIds
from datastore.photos.events import PhotoEvents
from datastore.photos.face_tags import FaceTags
from datastore.photos.faces import Faces
from datastore.photos.livestreams import Livestreams
from datastore.photos.lookups import Lookups
from datastore.photos.merge_persons import PersonMerge
from datastore.photos.person_photos import Appearances
from datastore.photos.persons import Persons
from datastore.photos.photos import Photos
from datastore.photos.rename_person import PersonRename
from datastore.photos.update_photo import PhotoUpdates
from datastore.photos.uploads import Uploads
from datastore.photos.users import PhotoUsers
from datastore.search import SearchIndex
from datastore.session.cursors import Cursors
from datastore.session.metering import Deadline, Meter
from datastore.session.read_cache import ReadFreshness
from datastore.session.scan_cache import ScanCache
from datastore.session.store import Store
from datastore.sightings.reporters import Reporters
from datastore.sightings.sightings import Sightings
from datastore.sightings.watches import Watches


@dataclass(frozen=True, slots=True)
class SightingPlaces:
    """The configured areas and categories of the sightings."""

    areas: tuple[str, ...]
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Services:
    """What lives as long as the process: one of each. Time comes from `now`, chance from `new_id`.

    `keeps_metadata` tells whether originals of photos are stored with their metadata.
    """

    client: Client
    prefix: str
    cursors: Cursors
    changes: ChangeFeed
    remembered: ScanCache
    request_logs: RequestLogs
    ingest: Callable[[str], Awaitable[IngestSummary]]
    places: SightingPlaces
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    user_ids: UserIds
    objects: ObjectStore
    search: SearchIndex
    deadline_seconds: float = 30.0
    keeps_metadata: bool = False
    parsed_matches: ParsedMatches = field(default_factory=ParsedMatches)
    pictures: DecoderPool = field(default_factory=DecoderPool)


T = TypeVar("T")


class _LazyAttribute(Generic[T]):
    """An attribute that is made when it is first asked for: `cached_property` without the lock that it has in 3.11."""

    __slots__ = ("_make", "_name")

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> "_LazyAttribute[T]": ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> "T | _LazyAttribute[T]":
        if instance is None:
            return self
        own = instance.__dict__
        value = own[self._name] = self._make(instance)
        own["_made"].append(self._name)
        return value


def _one() -> int:
    return 1


class Context:
    """One operation's context.

    `knows_who_asks` is whether anything has depended on the `identity`: nothing but what reads it does. `stands_for`
    tells how many have what a subscription's source makes, and `progress` how far it has come.
    """

    def __init__(self, services: Services, identity: Identity | None) -> None:
        self.services = services
        self.stands_for: Callable[[], int] = _one
        self.progress: SubscriptionProgress | None = None  # of a subscription
        self.knows_who_asks = False
        self._identity = identity
        self.meter = Meter()
        self.has_logged_refusal = False
        # Beside the one that is read from. Those of events that are over go by themselves.
        self._others: WeakSet[Store] | None = None
        self._made: list[str] = []
        self._sharing = ReadFreshness.OWN
        self._origin: IdSource | None = None
        self._ids_made: dict[str, int] = {}
        self.now = services.now()
        self.store = self._opened()

    @property
    def identity(self) -> Identity | None:
        """Who asks, None for anybody without a token."""
        self.knows_who_asks = True
        return self._identity

    def share(self, sharing: ReadFreshness) -> None:
        """Say which reads of other operations may serve this one, before it reads."""
        self._sharing = self.store.freshness = sharing

    def make_from(self, origin: IdSource) -> None:
        """Say what ids and keys are made from, before anything is written: the mutation has an Idempotency-Key."""
        self._origin = origin
        self.store.is_retry = origin.again

    @property
    def asked_at(self) -> datetime:
        """The moment for keys: when a mutation was first asked for, where it may be executed anew under its key."""
        return self.now if self._origin is None else self._origin.moment

    @property
    def is_again(self) -> bool:
        """Whether another process, which is gone, may have executed this mutation before."""
        return self._origin is not None and self._origin.again

    def new_id(self, info: "Info") -> str:
        """An id that comes once: for the root field that asks, by its place in the mutation, if it has a key."""
        if self._origin is None:
            return self.services.new_id()
        field = str(info.path.key)
        number = self._ids_made[field] = self._ids_made.get(field, 0) + 1
        return self._origin.id(f"{field} {number}")

    def told(self) -> None:
        """Something was told of how things stand: nothing older is shown beside it, here or in another event."""
        shared = self.services.client.shared.for_prefix(self.services.prefix)
        if shared is not None:
            shared.advance_watermark()

    def renew(self) -> None:
        """Begin anew: the next event of a subscription sees its own moment, and nothing that was read for the last."""
        self._note(self.store)
        self._let_go()
        self.now = self.services.now()
        self.store = self._opened()

    def close(self) -> None:
        """Give up the reads that nobody waits for any more: their keys are not asked for."""
        self.store.close()
        for store in self._others or ():
            store.close()
        self._let_go()

    def _let_go(self) -> None:
        """Of what was made for it: some of that knows the context, and all that was read would stay with it."""
        for name in self._made:
            self.__dict__.pop(name, None)
        self._made.clear()

    def new_store(self) -> Store:
        """A store that has read nothing yet, with a deadline of its own."""
        store = self._opened()
        self._note(store)
        return store

    def _opened(self, meter: Meter | None = None) -> Store:
        services = self.services
        store = Store(
            services.client,
            prefix=services.prefix,
            deadline=Deadline(services.deadline_seconds),
            token=services.new_id,
            meter=self.meter if meter is None else meter,
        )
        store.freshness = self._sharing
        store.is_retry = self.is_again
        return store

    def _note(self, store: Store) -> None:
        if self._others is None:
            self._others = WeakSet()
        self._others.add(store)

    @_LazyAttribute
    def sightings(self) -> Sightings:
        return Sightings(self.store, self.now)

    @_LazyAttribute
    def reporters(self) -> Reporters:
        return Reporters(self.store)

    @_LazyAttribute
    def watches(self) -> Watches:
        return Watches(self.store)

    @_LazyAttribute
    def earthquakes(self) -> Earthquakes:
        return Earthquakes(self.store, self.now)

    @_LazyAttribute
    def teams(self) -> Teams:
        return Teams(self.store, self.now, self.services.remembered)

    @_LazyAttribute
    def team_seasons(self) -> TeamSeasons:
        return TeamSeasons(self.store, self.now)

    @_LazyAttribute
    def leagues(self) -> Leagues:
        return Leagues(self.store, self.now, self.services.remembered)

    @_LazyAttribute
    def display_states(self) -> DisplayStates:
        return DisplayStates(self.store, self.now)

    @_LazyAttribute
    def fixtures(self) -> Fixtures:
        return Fixtures(self.store, self.now)

    @_LazyAttribute
    def fixture_cache(self) -> FixtureCache:
        return FixtureCache(self.store, self.now)

    @_LazyAttribute
    def active_matches(self) -> ActiveMatches:
        return ActiveMatches(self.store, self.now, self.services.remembered)

    @_LazyAttribute
    def match_follows(self) -> MatchFollows:
        return MatchFollows(self.store, self.now)

    @_LazyAttribute
    def devices(self) -> Devices:
        return Devices(self.store, self.now)

    @_LazyAttribute
    def live_activities(self) -> LiveActivities:
        return LiveActivities(self.store, self.now)

    @_LazyAttribute
    def sight(self) -> VisibilityPolicy:
        """What the caller may see of the feed."""
        return VisibilityPolicy(self.store, self.viewer)

    def viewer(self) -> Viewer:
        """The caller, as who looks at posts."""
        identity = self.identity
        return Viewer() if identity is None else Viewer(identity.user_id, identity.role is not Role.USER)

    @_LazyAttribute
    def users(self) -> Users:
        return Users(self.store, self.now)

    @_LazyAttribute
    def posts(self) -> Posts:
        return Posts(self.store, self.now, self.sight)

    @_LazyAttribute
    def searches(self) -> Searches:
        """Searches of the feed."""
        return Searches(self.services.search, self.store, self.now, self.sight)

    @_LazyAttribute
    def comments(self) -> Comments:
        return Comments(self.store, self.now)

    @_LazyAttribute
    def likes(self) -> Likes:
        return Likes(self.store, self.now)

    @_LazyAttribute
    def follows(self) -> Follows:
        return Follows(self.store, self.now)

    @_LazyAttribute
    def home_feeds(self) -> HomeFeeds:
        return HomeFeeds(self.store)

    @_LazyAttribute
    def notifications(self) -> Notifications:
        return Notifications(self.store, self.now)

    @_LazyAttribute
    def leaderboards(self) -> Leaderboards:
        return Leaderboards(self.store, self.now)

    @_LazyAttribute
    def lookups(self) -> Lookups:
        """Items of the photo library by their ids alone."""
        return Lookups(self.store)

    @_LazyAttribute
    def photo_users(self) -> PhotoUsers:
        return PhotoUsers(self.store, self.now)

    @_LazyAttribute
    def photos(self) -> Photos:
        return Photos(self.store, self.lookups)

    @_LazyAttribute
    def persons(self) -> Persons:
        return Persons(self.store, self.lookups, self.now)

    @_LazyAttribute
    def faces(self) -> Faces:
        return Faces(self.store, self.lookups)

    @_LazyAttribute
    def naming(self) -> PersonRename:
        """Of persons on photos."""
        return PersonRename(self.store, self.lookups, self.now)

    @_LazyAttribute
    def merging(self) -> PersonMerge:
        """Of persons on photos."""
        return PersonMerge(self.store, self.lookups, self.now)

    @_LazyAttribute
    def tagging(self) -> FaceTags:
        """Of faces on photos."""
        return FaceTags(self.store, self.lookups)

    @_LazyAttribute
    def photo_editing(self) -> PhotoUpdates:
        return PhotoUpdates(self.store, self.lookups, self.services.objects, self.now)

    @_LazyAttribute
    def livestreams(self) -> Livestreams:
        return Livestreams(self.store, self.lookups, self.now)

    @_LazyAttribute
    def photo_events(self) -> PhotoEvents:
        """What happened in the apps of the photo library."""
        return PhotoEvents(self.store)

    @_LazyAttribute
    def appearances(self) -> Appearances:
        return Appearances(self.store, self.photos, self.faces)

    @_LazyAttribute
    def uploads(self) -> Uploads:
        return Uploads(
            self.store,
            self.services.objects,
            self.services.pictures,
            self.now,
            self.new_store,
            keeps_metadata=self.services.keeps_metadata,
        )


Info = strawberry.Info[Context, None]
