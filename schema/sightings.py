"""GraphQL types and fields of street sightings."""

from collections.abc import AsyncGenerator
from datetime import date, datetime

import strawberry

from datastore.keyspace import sightings as patterns
from datastore.model.access_patterns import Extent
from datastore.sightings import reporters, watches
from datastore.sightings import sightings as records
from resolvers.sightings import nodes
from resolvers.sightings import sightings as resolve
from schema.connections import Connection, Node, is_record, node_id
from schema.fields import pattern_field, pattern_subscription

strawberry.enum(
    reporters.TrustTier,
    description="The trust in a reporter: BRONZE at first, SILVER from 10 and GOLD from 50 reports that another "
    "user confirmed. At most ten confirmed reports count per UTC day.",
)
strawberry.enum(
    records.Freshness,
    description=(
        "How to draw a sighting. FRESH, above a confidence of 0.66: bright orange ring, high opacity. "
        "FADING, from 0.33: yellow, slightly dimmed. STALE, below 0.33: gray, reduced opacity."
    ),
)


@strawberry.type(description="A reporter of sightings with trust tier, streak and totals.")
class UserProfile(Node):
    id = node_id(nodes.user_profile_id)
    user_id: strawberry.ID = strawberry.field(description="The user's id: the `sub` of the user's token.")
    trust_tier: reporters.TrustTier = strawberry.field(description="The reporter's trust tier.")
    report_total: int = strawberry.field(description="The number of sightings reported so far.")
    confirmed_reports: int = strawberry.field(
        description="The number of reports that another user confirmed, at most ten per UTC day. The trust tier "
        "depends on it."
    )
    streak_days: int = strawberry.field(
        description="The number of consecutive UTC days with a report, up to the last report."
    )
    last_reported_on: date | None = strawberry.field(
        description="The UTC day of the last report; null before the first one."
    )

    is_type_of = is_record(reporters.UserProfile)


@strawberry.type(
    description="Something seen in the street. A sighting expires after 30 minutes, and its confidence falls until "
    "then."
)
class Sighting(Node):
    id = node_id(nodes.sighting_id)
    sighting_id: strawberry.ID = strawberry.field(description="The sighting's id, unique among sightings.")
    area: str = strawberry.field(description="The area, one of `areas`.")
    category: str = strawberry.field(description="The category, one of `categories`.")
    description: str = strawberry.field(description="What the reporter saw, in words.")
    reporter_id: strawberry.ID = strawberry.field(description="The id of the reporter.")
    reporter = pattern_field(
        patterns.USER_PROFILE,
        resolver=resolve.reporter,
        depends_on="reporter_id",
        graphql_type=UserProfile | None,
        description="The reporter's present profile.",
    )
    trust_tier: reporters.TrustTier = strawberry.field(
        description="The reporter's trust tier at the time of the report."
    )
    reported_at: datetime = strawberry.field(description="The time of the report.")
    expires_at: datetime = strawberry.field(description="The time at which the sighting expires.")
    confirmation_count: int = strawberry.field(description="The number of other users who confirmed the sighting.")
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

    is_type_of = is_record(records.Sighting)


@strawberry.type(description="An area and a category. The user is alerted of sightings that match both.")
class Watch(Node):
    id = node_id(nodes.watch_id)
    watch_id: strawberry.ID = strawberry.field(description="The watch's id, unique among the user's watches.")
    user_id: strawberry.ID = strawberry.field(description="The id of the user.")
    area: str = strawberry.field(description="The area, one of `areas`.")
    category: str = strawberry.field(description="The category, one of `categories`.")
    created_at: datetime | None = strawberry.field(
        description="The time at which the watch was created; null if another program stored it without a time."
    )

    is_type_of = is_record(watches.Watch)


@strawberry.type(description="A category with its number of live sightings.")
class TrendingCategory:
    category: str = strawberry.field(description="The category, one of `categories`.")
    score: int = strawberry.field(description="The number of live sightings that were reported within the window.")
    sightings = strawberry.field(
        resolver=resolve.trending_sightings,
        graphql_type=Connection[Sighting],
        description="The sightings that the score counts, newest first.",
    )


@strawberry.type
class SightingQueries:
    areas = strawberry.field(
        resolver=resolve.areas, graphql_type=list[str], description="Return all areas of sightings."
    )
    categories = strawberry.field(
        resolver=resolve.categories, graphql_type=list[str], description="Return all categories of sightings."
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
        extent=Extent(size=10),
        description="Return a user's watches. Users read their own; admins and the system read any user's.",
    )
    trending = pattern_field(
        patterns.TRENDING,
        resolver=resolve.trending,
        graphql_type=list[TrendingCategory],
        extent=Extent(size=5, partitions=resolve.blocks_read),
        description="Return the categories by the number of live sightings in a time window, most first.",
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
        graphql_type=Watch,
        description="Delete a watch of the caller, and return it. NOT_FOUND if it does not exist.",
    )
    seed_demo = pattern_field(
        patterns.SEED,
        resolver=resolve.seed_demo,
        graphql_type=list[Sighting],
        extent=Extent(size=8, written=8),
        description="Store eight realistic sightings in all areas, of different ages, and return them.",
    )


@strawberry.type
class SightingSubscriptions:
    sighting_reported = pattern_subscription(
        patterns.SIGHTING_REPORTED,
        resolver=resolve.sighting_reported,
        graphql_type=AsyncGenerator[Sighting, None],
        description="Receive sightings as they are reported, by any user.",
    )
    watch_alerts = pattern_subscription(
        patterns.WATCH_ALERTS,
        resolver=resolve.watch_alerts,
        graphql_type=AsyncGenerator[Sighting, None],
        description="Receive sightings that match the user's watches, including watches that are created after "
        "subscribing. Users receive their own; admins and the system receive any user's.",
    )
