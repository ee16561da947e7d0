"""GraphQL types and fields of street sightings."""

from collections.abc import AsyncGenerator
from datetime import date, datetime

import strawberry

from datastore.keyspace import sightings as patterns
from datastore.model.access_patterns import Extent
from datastore.sightings import reporters, watches
from datastore.sightings import sightings as records
from resolvers.sightings import sightings as resolve
from schema.connections import Connection
from schema.feeds.lazy_types import user_field
from schema.fields import batch_field, described, pattern_field, pattern_subscription
from schema.nodes import Node, node_type, object_type
from schema.photos.lazy_types import photo_user_field
from schema.systems import System

WATCHES_EXTENT = Extent(size=10)

strawberry.enum(
    reporters.TrustTier,
    description="The trust in a reporter: BRONZE at first, SILVER from 10 and GOLD from 50 reports that another "
    "user confirmed. At most ten confirmed reports count per UTC day.",
)
strawberry.enum(
    records.Freshness,
    description=(
        "How to draw a sighting. FRESH, above a confidence of 0.66: bright orange ring, high opacity. "
        "FADING, from 0.33: yellow, slightly dimmed. STALE, below 0.33: grey, reduced opacity."
    ),
)
strawberry.enum(
    records.TrendingWindow,
    description="The time window in which live sightings are counted. QUARTER_HOUR: those of the last 15 minutes. "
    "SIX_HOURS: all of them, because a sighting lives for half an hour.",
)


@node_type(
    reporters.UserProfile,
    patterns.USER_PROFILE,
    parts=("user_id",),
    read=lambda context, *key: context.reporters.by_id(*key),
    description="A reporter of sightings with trust tier, streak and totals.",
)
class UserProfile(Node):
    user_id: strawberry.ID = described("The user's id: the `sub` of the user's token.")
    trust_tier: reporters.TrustTier = described("The reporter's trust tier.")
    report_total: int = described("The number of sightings reported so far.")
    confirmed_reports: int = described(
        "The number of reports that another user confirmed, at most ten per UTC day. The trust tier depends on it.",
        name="confirmedReportCount",
    )
    streak_days: int = described("The number of consecutive UTC days with a report, up to the last report.")
    last_reported_on: date | None = described("The UTC day of the last report; null if another program stored none.")
    user = user_field("user_id", "The reporter's user in the feed; null before `createUser`.")
    photo_user = photo_user_field()


@node_type(
    records.Sighting,
    patterns.SIGHTING_NODE,
    parts=("area", "moment", "sighting_id"),
    id=resolve.global_sighting_id,
    read=lambda context, *key: context.sightings.by_key(*key),
    description="Something seen in the street. A sighting expires after 30 minutes, and its confidence falls until "
    "then.",
)
class Sighting(Node):
    sighting_id: strawberry.ID = described("The sighting's id, unique among sightings.")
    area: str = described("The area, one of `areas`.")
    category: str = described("The category, one of `categories`.")
    description: str = described("What the reporter saw, in words.")
    reporter_id: strawberry.ID = described("The id of the reporter.")
    reporter = batch_field(
        patterns.USER_PROFILE,
        resolver=resolve.reporters_by_id,
        depends_on="reporter_id",
        graphql_type=UserProfile | None,
        description="The reporter's `UserProfile`, as it is now; null if there is none.",
    )
    trust_tier: reporters.TrustTier = described("The reporter's trust tier at the time of the report.")
    reported_at: datetime = described("The time of the report.")
    expires_at: datetime = described("The time at which the sighting expires.")
    confirmation_count: int = described("The number of other users who confirmed the sighting.")
    confidence = strawberry.field(
        resolver=resolve.confidence,
        graphql_type=float,
        description="The estimated probability that the sighting is still current, 0 to 1. It depends on the "
        "remaining time, the confirmations and the reporter's trust.",
    )
    freshness = strawberry.field(
        resolver=resolve.freshness,
        graphql_type=records.Freshness,
        description="How to draw the sighting, by its confidence.",
    )


@node_type(
    watches.Watch,
    patterns.WATCH_NODE,
    parts=("user_id", "area", "category", "watch_id"),
    owner="user_id",
    read=lambda context, *key: context.watches.by_key(*key),
    description="An area and a category. The user is alerted to sightings that match both.",
)
class Watch(Node):
    watch_id: strawberry.ID = described("The watch's id, unique among the user's watches.")
    user_id: strawberry.ID = described("The id of the user.")
    area: str = described("The area, one of `areas`.")
    category: str = described("The category, one of `categories`.")
    created_at: datetime | None = described(
        "The time at which the watch was created; null if another program stored it without a time."
    )


@object_type("category", "window", description="A category with its number of live sightings.")
class TrendingCategory:
    category: str = described("The category, one of `categories`.")
    score: int = described("The number of live sightings that were reported within the window.", name="sightingCount")
    sightings = strawberry.field(
        resolver=resolve.trending_sightings,
        graphql_type=Connection[Sighting],
        description="The sightings that `sightingCount` counts, newest first.",
    )


@strawberry.type
class SightingQueries:
    areas = strawberry.field(
        resolver=resolve.areas,
        graphql_type=list[str],
        description="Return all areas of sightings, at most 100, in the configured order.",
    )
    categories = strawberry.field(
        resolver=resolve.categories,
        graphql_type=list[str],
        description="Return all categories of sightings, at most 100, in the configured order.",
    )
    sightings = pattern_field(
        patterns.ACTIVE_IN_AREA,
        resolver=resolve.sightings,
        graphql_type=Connection[Sighting],
        description="Return the active sightings of an area, newest first.",
    )
    user_profile = pattern_field(
        patterns.USER_PROFILE,
        resolver=resolve.user_profile,
        graphql_type=UserProfile | None,
        description="Return a reporter's profile; null before the first report.",
    )
    watches = pattern_field(
        patterns.WATCHES_OF_USER,
        resolver=resolve.watches,
        graphql_type=list[Watch],
        extent=WATCHES_EXTENT,
        description="Return a user's watches, in the order of area and category. A user has at most one for each area "
        "and category. Users read their own; admins and the system read any user's.",
    )
    trending = pattern_field(
        patterns.TRENDING,
        resolver=resolve.trending,
        graphql_type=list[TrendingCategory],
        extent=Extent(
            size=5,
            partitions=resolve.blocks_read,
            ignores={"window": "Sightings expire after half an hour: a longer window reads no more of them."},
        ),
        description="Return the categories by the number of live sightings in a time window, most first: one entry for "
        "each category.",
    )


@strawberry.type
class SightingMutations:
    report_sighting = pattern_field(
        patterns.REPORT,
        resolver=resolve.report_sighting,
        graphql_type=Sighting,
        extent=Extent(written=2),
        description="Report a sighting. It counts towards the reporter's totals and streak.",
    )
    confirm_sighting = pattern_field(
        patterns.CONFIRM,
        resolver=resolve.confirm_sighting,
        graphql_type=Sighting,
        extent=Extent(scanned=25, written=2),
        description="Confirm that a sighting is still current. A second confirmation, or one of the caller's own "
        "sighting, changes nothing. The returned count may miss confirmations that are made at the same time.",
    )
    create_watch = pattern_field(
        patterns.CREATE_WATCH,
        resolver=resolve.create_watch,
        graphql_type=Watch,
        description="Watch an area and category, and return the watch. A repeated request returns the existing watch.",
    )
    delete_watch = pattern_field(
        patterns.DELETE_WATCH,
        resolver=resolve.delete_watch,
        graphql_type=Watch | None,
        description="Delete a watch of the caller, and return it; null if it does not exist.",
    )
    seed_demo = pattern_field(
        patterns.SEED,
        resolver=resolve.seed_demo,
        graphql_type=list[Sighting],
        extent=Extent(size=8, written=8),
        description="Store eight realistic sightings in all areas, of different ages, and return them, in no order.",
    )


@strawberry.type
class SightingSubscriptions:
    sighting_reported = pattern_subscription(
        patterns.SIGHTING_REPORTED,
        resolver=resolve.sighting_reported,
        graphql_type=AsyncGenerator[Sighting, None],
        description="Receive sightings as they are reported, by any user. With `whenSlow: LATEST` the newest sighting "
        "of each area and category waits.",
    )
    watch_alerts = pattern_subscription(
        patterns.WATCH_ALERTS,
        resolver=resolve.watch_alerts,
        graphql_type=AsyncGenerator[Sighting, None],
        description="Receive sightings that match the user's watches, including watches that are created after "
        "subscribing. With `whenSlow: LATEST` the newest sighting of each area and category waits. Users receive "
        "their own; admins and the system receive any user's.",
    )


SYSTEM = System(
    queries=(SightingQueries,),
    mutations=(SightingMutations,),
    subscriptions=(SightingSubscriptions,),
    nodes=(UserProfile, Sighting, Watch),
)
