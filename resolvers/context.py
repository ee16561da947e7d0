"""What a resolver is given: who asks, the moment it is, and the store, all fresh for each operation and each event."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from weakref import WeakSet

import strawberry

from datastore.changes import ChangeFeed
from datastore.client import Client
from datastore.cursors import Cursors
from datastore.earthquakes import Earthquakes, IngestSummary
from datastore.feeds.comments import Comments
from datastore.feeds.follows import Follows
from datastore.feeds.home_feeds import HomeFeeds
from datastore.feeds.leaderboards import Leaderboards
from datastore.feeds.likes import Likes
from datastore.feeds.notifications import Notifications
from datastore.feeds.posts import Posts
from datastore.feeds.users import Users
from datastore.feeds.visibility import Sight, Viewer
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.devices import Devices
from datastore.matches.display_states import DisplayStates
from datastore.matches.fixture_cache import FixtureCache
from datastore.matches.fixtures import Fixtures
from datastore.matches.leagues import Leagues
from datastore.matches.live_activities import LiveActivities
from datastore.matches.live_changes import ParsedMatches
from datastore.matches.match_follows import MatchFollows
from datastore.matches.team_seasons import TeamSeasons
from datastore.matches.teams import Teams
from datastore.metering import Deadline, Meter
from datastore.objects import ObjectStore
from datastore.photos.appearances import Appearances
from datastore.photos.editing import Editing
from datastore.photos.events import PhotoEvents
from datastore.photos.faces import Faces
from datastore.photos.library import Photos
from datastore.photos.livestreams import Livestreams
from datastore.photos.lookups import Lookups
from datastore.photos.merging import Merging
from datastore.photos.naming import Naming
from datastore.photos.persons import Persons
from datastore.photos.pictures import Pictures
from datastore.photos.tagging import Tagging
from datastore.photos.uploads import Uploads
from datastore.photos.user_ids import UserIds
from datastore.photos.users import PhotoUsers
from datastore.remembered import RememberedScans
from datastore.reporters import Reporters
from datastore.request_logs import RequestLogs
from datastore.sightings import Sightings
from datastore.store import Store
from datastore.watches import Watches
from resolvers.access import Identity, Role


@dataclass(frozen=True, slots=True)
class Places:
    """The configured areas and categories of the sightings."""

    areas: tuple[str, ...]
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Services:
    """What lives as long as the process: one of each. Time comes from `now`, chance from `new_id`."""

    client: Client
    prefix: str
    cursors: Cursors
    changes: ChangeFeed
    remembered: RememberedScans
    request_logs: RequestLogs
    ingest: Callable[[str], Awaitable[IngestSummary]]
    places: Places
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    user_ids: UserIds
    objects: ObjectStore
    deadline_seconds: float = 30.0
    parsed_matches: ParsedMatches = field(default_factory=ParsedMatches)
    pictures: Pictures = field(default_factory=Pictures)


class Context:
    """One operation's context."""

    def __init__(self, services: Services, identity: Identity | None) -> None:
        self.services = services
        self.identity = identity
        self.meter = Meter()
        self.has_logged_refusal = False
        # Those of events that are over go by themselves.
        self._stores: WeakSet[Store] = WeakSet()
        self.renew()

    def renew(self) -> None:
        """Begin anew: the next event of a subscription sees its own moment, and nothing that was read for the last."""
        self.now = self.services.now()
        self.store = self.new_store()
        for name in (
            "sightings",
            "reporters",
            "watches",
            "earthquakes",
            "teams",
            "team_seasons",
            "leagues",
            "display_states",
            "fixtures",
            "fixture_cache",
            "active_matches",
            "match_follows",
            "devices",
            "live_activities",
            "sight",
            "users",
            "posts",
            "comments",
            "likes",
            "follows",
            "home_feeds",
            "notifications",
            "leaderboards",
            "lookups",
            "photo_users",
            "photos",
            "persons",
            "faces",
            "naming",
            "merging",
            "tagging",
            "photo_editing",
            "livestreams",
            "photo_events",
            "appearances",
            "uploads",
        ):
            self.__dict__.pop(name, None)

    def close(self) -> None:
        """Give up the reads that nobody waits for any more: their keys are not asked for."""
        for store in self._stores:
            store.close()

    def new_store(self) -> Store:
        """A store that has read nothing yet, with a deadline of its own."""
        store = Store(
            self.services.client,
            prefix=self.services.prefix,
            deadline=Deadline(self.services.deadline_seconds),
            token=self.services.new_id,
            meter=self.meter,
        )
        self._stores.add(store)
        return store

    @cached_property
    def sightings(self) -> Sightings:
        return Sightings(self.store, self.now)

    @cached_property
    def reporters(self) -> Reporters:
        return Reporters(self.store)

    @cached_property
    def watches(self) -> Watches:
        return Watches(self.store)

    @cached_property
    def earthquakes(self) -> Earthquakes:
        return Earthquakes(self.store, self.now)

    @cached_property
    def teams(self) -> Teams:
        return Teams(self.store, self.now, self.services.remembered)

    @cached_property
    def team_seasons(self) -> TeamSeasons:
        return TeamSeasons(self.store, self.now)

    @cached_property
    def leagues(self) -> Leagues:
        return Leagues(self.store, self.now, self.services.remembered)

    @cached_property
    def display_states(self) -> DisplayStates:
        return DisplayStates(self.store, self.now)

    @cached_property
    def fixtures(self) -> Fixtures:
        return Fixtures(self.store, self.now)

    @cached_property
    def fixture_cache(self) -> FixtureCache:
        return FixtureCache(self.store, self.now)

    @cached_property
    def active_matches(self) -> ActiveMatches:
        return ActiveMatches(self.store, self.now)

    @cached_property
    def match_follows(self) -> MatchFollows:
        return MatchFollows(self.store, self.now)

    @cached_property
    def devices(self) -> Devices:
        return Devices(self.store, self.now)

    @cached_property
    def live_activities(self) -> LiveActivities:
        return LiveActivities(self.store, self.now)

    @cached_property
    def sight(self) -> Sight:
        """What the caller may see of the feed."""
        if self.identity is None:
            return Sight(self.store, Viewer())
        return Sight(self.store, Viewer(self.identity.user_id, sees_all=self.identity.role is not Role.USER))

    @cached_property
    def users(self) -> Users:
        return Users(self.store, self.now)

    @cached_property
    def posts(self) -> Posts:
        return Posts(self.store, self.now, self.sight)

    @cached_property
    def comments(self) -> Comments:
        return Comments(self.store, self.now)

    @cached_property
    def likes(self) -> Likes:
        return Likes(self.store, self.now)

    @cached_property
    def follows(self) -> Follows:
        return Follows(self.store, self.now)

    @cached_property
    def home_feeds(self) -> HomeFeeds:
        return HomeFeeds(self.store)

    @cached_property
    def notifications(self) -> Notifications:
        return Notifications(self.store, self.now)

    @cached_property
    def leaderboards(self) -> Leaderboards:
        return Leaderboards(self.store, self.now)

    @cached_property
    def lookups(self) -> Lookups:
        """Items of the photo library by their ids alone."""
        return Lookups(self.store)

    @cached_property
    def photo_users(self) -> PhotoUsers:
        return PhotoUsers(self.store, self.now)

    @cached_property
    def photos(self) -> Photos:
        return Photos(self.store, self.lookups)

    @cached_property
    def persons(self) -> Persons:
        return Persons(self.store, self.lookups, self.now)

    @cached_property
    def faces(self) -> Faces:
        return Faces(self.store)

    @cached_property
    def naming(self) -> Naming:
        """Of persons on photos."""
        return Naming(self.store, self.lookups, self.now)

    @cached_property
    def merging(self) -> Merging:
        """Of persons on photos."""
        return Merging(self.store, self.lookups, self.now)

    @cached_property
    def tagging(self) -> Tagging:
        """Of faces on photos."""
        return Tagging(self.store, self.lookups)

    @cached_property
    def photo_editing(self) -> Editing:
        return Editing(self.store, self.lookups, self.services.objects, self.now)

    @cached_property
    def livestreams(self) -> Livestreams:
        return Livestreams(self.store, self.lookups, self.now)

    @cached_property
    def photo_events(self) -> PhotoEvents:
        """What happened in the apps of the photo library."""
        return PhotoEvents(self.store)

    @cached_property
    def appearances(self) -> Appearances:
        return Appearances(self.store, self.photos, self.faces)

    @cached_property
    def uploads(self) -> Uploads:
        return Uploads(self.store, self.services.objects, self.services.pictures, self.now, self.new_store)


Info = strawberry.Info[Context, None]
