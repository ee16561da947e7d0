"""The context that resolvers receive: the caller, the time and the store of one operation or event."""

from datetime import datetime
from weakref import WeakSet

import strawberry

from datastore.earthquakes.earthquakes import Earthquakes
from datastore.feeds.comments import Comments
from datastore.feeds.follows import Follows
from datastore.feeds.home_feeds import HomeFeeds
from datastore.feeds.leaderboards import Leaderboards
from datastore.feeds.likes import Likes
from datastore.feeds.notifications import Notifications
from datastore.feeds.own_changes import OwnChanges
from datastore.feeds.posts import Posts
from datastore.feeds.searches import Searches
from datastore.feeds.users import Users
from datastore.feeds.visibility import Viewer, VisibilityPolicy
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
from datastore.photos.events import PhotoEvents
from datastore.photos.face_tags import FaceTags
from datastore.photos.faces import Faces
from datastore.photos.livestreams import Livestreams
from datastore.photos.lookups import Lookups
from datastore.photos.merge_persons import PersonMerge
from datastore.photos.person_photos import PersonPhotos
from datastore.photos.persons import PersonRename, Persons
from datastore.photos.photos import Photos
from datastore.photos.update_photo import PhotoUpdates
from datastore.photos.upload_reservations import UploadReservations
from datastore.photos.uploads import Uploads
from datastore.photos.users import PhotoUsers
from datastore.session.metering import Deadline, Meter
from datastore.session.request_reads import ReadFreshness
from datastore.session.store import Store
from datastore.sightings.reporters import Reporters
from datastore.sightings.sightings import Sightings
from datastore.sightings.watches import Watches
from resolvers.shared.lazy_attribute import LazyAttribute
from resolvers.shared.services import Services


class _StoreAttribute:
    """The store of a context, opened when it is first used: the events of many subscriptions read nothing."""

    def __get__(self, context: "Context", _: type) -> Store:
        services, now, source = context.services, context.now, context._id_source
        store = context.__dict__["store"] = Store(
            services.client,
            prefix=services.prefix,
            deadline=Deadline(services.deadline_seconds),
            token=services.new_id,
            meter=context.meter,
            now=lambda: now,
        )
        store.freshness, store.resolves_at_once = context.freshness, context.resolves_at_once
        store.is_retry = source is not None and source.is_retry
        return store


class Context:
    """The context of one operation. The source of a subscription has one, and each of its events has its own."""

    #: The time of the operation or event.
    now: datetime
    #: The store of the operation or event.
    store = _StoreAttribute()
    #: Which reads of other operations may serve this one.
    freshness: ReadFreshness
    #: Whether compiled code executes the operation.
    resolves_at_once: bool
    #: Whether the identity was read, so that the result may depend on it.
    used_identity: bool
    #: Whether a request log of a rejected field was written.
    has_logged_rejection: bool
    #: The names of the lazy attributes that were computed.
    lazy_names: list[str]

    def __init__(self, services: Services, identity: Identity | None, freshness: ReadFreshness, compiled: bool) -> None:
        """Create a context. `freshness` are the reads of other operations that may serve it.

        compiled: whether compiled code executes the operation.
        """
        self.services = services
        self.used_identity = False
        self._identity = identity
        self.meter = Meter()
        self.has_logged_rejection = False
        # Stores other than the present one. Unused ones are garbage-collected.
        self._other_stores: WeakSet[Store] | None = None
        self.lazy_names = []
        self._id_source: IdSource | None = None
        self._id_counts: dict[str, int] = {}
        self.freshness, self.resolves_at_once = freshness, compiled
        self.now = services.now()

    @property
    def identity(self) -> Identity | None:
        """The caller, or None without a token."""
        self.used_identity = True
        return self._identity

    def use_id_source(self, source: IdSource) -> None:
        """Derive new ids from the mutation's Idempotency-Key. Call it before the first use of the store."""
        self._id_source = source

    @property
    def requested_at(self) -> datetime:
        """The time for new keys: that of the first request, if the mutation has an Idempotency-Key."""
        return self.now if self._id_source is None else self._id_source.requested_at

    @property
    def is_retry(self) -> bool:
        """Whether another process, which has ended, may have executed this mutation before."""
        return self._id_source is not None and self._id_source.is_retry

    def new_id(self, info: "Info") -> str:
        """Return a new id. With an Idempotency-Key it is derived from the root field's response key and a count."""
        if self._id_source is None:
            return self.services.new_id()
        field = str(info.path.key)
        number = self._id_counts[field] = self._id_counts.get(field, 0) + 1
        return self._id_source.id(f"{field} {number}")

    def advance_watermark(self) -> None:
        """Let no later read of this process return data older than the present state, in other events either."""
        shared = self.services.client.read_caches.for_prefix(self.services.prefix)
        if shared is not None:
            shared.advance_watermark()

    def close(self) -> None:
        """Cancel the reads that are still queued, and delete the lazy attributes."""
        if "store" in self.__dict__:
            self.store.close()
        for store in self._other_stores or ():
            store.close()
        # Some lazy attributes reference the context, in a cycle that would keep all reads in memory.
        for name in self.lazy_names:
            del self.__dict__[name]
        self.lazy_names = []

    def new_store(self) -> Store:
        """Return a store with its own deadline and no previous reads."""
        store = self.store.reopened(Deadline(self.services.deadline_seconds))
        if self._other_stores is None:
            self._other_stores = WeakSet()
        self._other_stores.add(store)
        return store

    @LazyAttribute
    def sightings(self) -> Sightings:
        return Sightings(self.store, self.now)

    @LazyAttribute
    def reporters(self) -> Reporters:
        return Reporters(self.store)

    @LazyAttribute
    def watches(self) -> Watches:
        return Watches(self.store)

    @LazyAttribute
    def earthquakes(self) -> Earthquakes:
        return Earthquakes(self.store, self.now)

    @LazyAttribute
    def teams(self) -> Teams:
        return Teams(self.store, self.now, self.services.scan_cache)

    @LazyAttribute
    def team_seasons(self) -> TeamSeasons:
        return TeamSeasons(self.store, self.now)

    @LazyAttribute
    def leagues(self) -> Leagues:
        return Leagues(self.store, self.now, self.services.scan_cache)

    @LazyAttribute
    def display_states(self) -> DisplayStates:
        return DisplayStates(self.store, self.now)

    @LazyAttribute
    def fixtures(self) -> Fixtures:
        return Fixtures(self.store, self.now)

    @LazyAttribute
    def fixture_cache(self) -> FixtureCache:
        return FixtureCache(self.store, self.now)

    @LazyAttribute
    def active_matches(self) -> ActiveMatches:
        return ActiveMatches(self.store, self.now, self.services.scan_cache)

    @LazyAttribute
    def match_follows(self) -> MatchFollows:
        return MatchFollows(self.store, self.now)

    @LazyAttribute
    def devices(self) -> Devices:
        return Devices(self.store, self.now)

    @LazyAttribute
    def live_activities(self) -> LiveActivities:
        return LiveActivities(self.store, self.now)

    @LazyAttribute
    def visibility(self) -> VisibilityPolicy:
        return VisibilityPolicy(self.store, self.viewer)

    def viewer(self) -> Viewer:
        """Return the caller as a viewer of posts."""
        identity = self.identity
        return Viewer() if identity is None else Viewer(identity.user_id, identity.role is not Role.USER)

    @LazyAttribute
    def users(self) -> Users:
        return Users(self.store, self.now)

    @LazyAttribute
    def posts(self) -> Posts:
        return Posts(self.store, self.now, self.visibility)

    @LazyAttribute
    def searches(self) -> Searches:
        return Searches(self.services.search, self.store, self.now, self.visibility)

    @LazyAttribute
    def comments(self) -> Comments:
        return Comments(self.store, self.now)

    @LazyAttribute
    def likes(self) -> Likes:
        return Likes(self.store, self.now)

    @LazyAttribute
    def follows(self) -> Follows:
        return Follows(self.store, self.now)

    @LazyAttribute
    def own_changes(self) -> OwnChanges:
        return OwnChanges(self.store, self.now)

    @LazyAttribute
    def home_feeds(self) -> HomeFeeds:
        return HomeFeeds(self.store)

    @LazyAttribute
    def notifications(self) -> Notifications:
        return Notifications(self.store, self.now)

    @LazyAttribute
    def leaderboards(self) -> Leaderboards:
        return Leaderboards(self.store, self.now)

    @LazyAttribute
    def lookups(self) -> Lookups:
        return Lookups(self.store)

    @LazyAttribute
    def photo_users(self) -> PhotoUsers:
        return PhotoUsers(self.store, self.now)

    @LazyAttribute
    def photos(self) -> Photos:
        return Photos(self.store, self.lookups)

    @LazyAttribute
    def persons(self) -> Persons:
        return Persons(self.store, self.lookups)

    @LazyAttribute
    def faces(self) -> Faces:
        return Faces(self.store, self.lookups)

    @LazyAttribute
    def person_rename(self) -> PersonRename:
        return PersonRename(self.store, self.lookups, self.now)

    @LazyAttribute
    def person_merge(self) -> PersonMerge:
        return PersonMerge(self.store, self.lookups, self.now)

    @LazyAttribute
    def face_tags(self) -> FaceTags:
        return FaceTags(self.store, self.lookups)

    @LazyAttribute
    def photo_updates(self) -> PhotoUpdates:
        return PhotoUpdates(self.store, self.lookups, self.services.objects, self.now)

    @LazyAttribute
    def livestreams(self) -> Livestreams:
        return Livestreams(self.store, self.lookups, self.now)

    @LazyAttribute
    def photo_events(self) -> PhotoEvents:
        return PhotoEvents(self.store)

    @LazyAttribute
    def person_photos(self) -> PersonPhotos:
        return PersonPhotos(self.store, self.photos, self.faces)

    @LazyAttribute
    def upload_reservations(self) -> UploadReservations:
        return UploadReservations(self.store, self.services.objects, self.now)

    @LazyAttribute
    def uploads(self) -> Uploads:
        return Uploads(
            self.store,
            self.services.objects,
            self.services.decoder_pool,
            self.now,
            self.new_store,
            keeps_metadata=self.services.keeps_metadata,
        )


Info = strawberry.Info[Context, None]
