"""What the API says about street sightings: the shape only."""

from collections.abc import AsyncGenerator
from datetime import date, datetime
from typing import Any

import strawberry

from datastore.keyspace import sightings as patterns
from datastore.model.access_patterns import Extent
from datastore.sightings import reporters, watches
from datastore.sightings import sightings as records
from resolvers.shared import node_ids as nodes
from resolvers.sightings import sightings as resolve
from schema.connections import Connection, Node
from schema.fields import ask, listen

strawberry.enum(
    reporters.TrustTier,
    description="How far a reporter is trusted: bronze, silver from 10 reports that another user confirmed, "
    "gold from 50; at most ten count a day (UTC).",
)
strawberry.enum(
    records.Freshness,
    description=(
        "How to draw a sighting. FRESH above 0.66 of confidence: bright orange ring, high opacity. "
        "FADING from 0.33: yellow, slightly dimmed. STALE below: gray, reduced opacity."
    ),
)


@strawberry.type(description="Who reports sightings: trust, streak and totals.")
class UserProfile(Node):
    id = strawberry.field(resolver=nodes.user_profile_id, graphql_type=strawberry.ID, description="Globally unique.")
    user_id: strawberry.ID = strawberry.field(description="The `sub` of the user's token.")
    trust_tier: reporters.TrustTier = strawberry.field(description="How far the reporter is trusted.")
    report_total: int = strawberry.field(description="Sightings reported so far.")
    confirmed_reports: int = strawberry.field(
        description="Those of them that another user confirmed, at most ten a day (UTC): they make the tier."
    )
    streak_days: int = strawberry.field(description="Days in a row (UTC) with a report, up to the last one.")
    last_reported_on: date | None = strawberry.field(description="The UTC day of the last report.")

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, reporters.UserProfile)


@strawberry.type(description="Something seen in the street. It lives for 30 minutes and fades on the way.")
class Sighting(Node):
    id = strawberry.field(resolver=nodes.sighting_id, graphql_type=strawberry.ID, description="Globally unique.")
    sighting_id: strawberry.ID = strawberry.field(description="Unique among sightings.")
    area: str = strawberry.field(description="Where: one of `areas`.")
    category: str = strawberry.field(description="What kind: one of `categories`.")
    description: str = strawberry.field(description="What there is to see.")
    reporter_id: strawberry.ID = strawberry.field(description="Who reported it.")
    reporter = ask(
        patterns.USER_PROFILE,
        resolver=resolve.reporter,
        by="reporter_id",
        graphql_type=UserProfile | None,
        description="The reporter's profile as it is now.",
    )
    trust_tier: reporters.TrustTier = strawberry.field(description="The reporter's tier when it was reported.")
    reported_at: datetime = strawberry.field(description="When it was reported.")
    expires_at: datetime = strawberry.field(description="When it will be gone.")
    confirmation_count: int = strawberry.field(description="How many others have seen it too.")
    confidence = strawberry.field(
        resolver=resolve.confidence,
        graphql_type=float,
        description="How likely it is still there, 0 to 1: time left, confirmations and trust, at this moment.",
    )
    freshness = strawberry.field(
        resolver=resolve.freshness, graphql_type=records.Freshness, description="The confidence as a way to draw it."
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, records.Sighting)


@strawberry.type(description="An area and category that a user wants to hear of.")
class Watch(Node):
    id = strawberry.field(resolver=nodes.watch_id, graphql_type=strawberry.ID, description="Globally unique.")
    watch_id: strawberry.ID = strawberry.field(description="Unique among the user's watches.")
    user_id: strawberry.ID = strawberry.field(description="Whose watch it is.")
    area: str = strawberry.field(description="One of `areas`.")
    category: str = strawberry.field(description="One of `categories`.")
    created_at: datetime | None = strawberry.field(
        description="Since when; null where another program stored it without saying so."
    )

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, watches.Watch)


@strawberry.type(description="A category and how much there is of it.")
class TrendingCategory:
    category: str = strawberry.field(description="One of `categories`.")
    score: int = strawberry.field(description="Live sightings reported within the window.")
    sightings = strawberry.field(
        resolver=resolve.trending_sightings,
        graphql_type=Connection[Sighting],
        description="The sightings that make the score, newest first.",
    )


@strawberry.type
class SightingQueries:
    areas = strawberry.field(
        resolver=resolve.areas, graphql_type=list[str], description="All areas that sightings may be in."
    )
    categories = strawberry.field(
        resolver=resolve.categories, graphql_type=list[str], description="All categories that sightings may have."
    )
    sightings = ask(
        patterns.ACTIVE_IN_AREA,
        resolver=resolve.sightings,
        graphql_type=Connection[Sighting],
        description="The active sightings of an area, newest first.",
    )
    user_profile = ask(
        patterns.USER_PROFILE,
        resolver=resolve.user_profile,
        graphql_type=UserProfile | None,
        description="A reporter's profile, or null.",
    )
    watches = ask(
        patterns.WATCHES_OF_USER,
        resolver=resolve.watches,
        graphql_type=list[Watch],
        extent=Extent(size=10),
        description="What a user watches. Users see their own.",
    )
    trending = ask(
        patterns.TRENDING,
        resolver=resolve.trending,
        graphql_type=list[TrendingCategory],
        extent=Extent(size=5, partitions=resolve.windows_read),
        description="Categories by the number of live sightings in a window, most first.",
    )


@strawberry.type
class SightingMutations:
    report_sighting = ask(
        patterns.REPORT,
        resolver=resolve.report_sighting,
        graphql_type=Sighting,
        extent=Extent(written=2),
        description="Report a sighting; it counts in the reporter's totals and streak.",
    )
    confirm_sighting = ask(
        patterns.CONFIRM,
        resolver=resolve.confirm_sighting,
        graphql_type=Sighting,
        extent=Extent(scanned=25, written=2),
        description="Confirm that a sighting is still there. A second time, or one's own, changes nothing. The count "
        "answered may leave out those who confirm at the same moment.",
    )
    create_watch = ask(
        patterns.CREATE_WATCH,
        resolver=resolve.create_watch,
        graphql_type=Watch,
        description="Watch an area and category; asked for again, it answers the watch there is.",
    )
    delete_watch = ask(
        patterns.DELETE_WATCH,
        resolver=resolve.delete_watch,
        graphql_type=Watch,
        description="Stop watching; answers the watch that was deleted.",
    )
    seed_demo = ask(
        patterns.SEED,
        resolver=resolve.seed_demo,
        graphql_type=list[Sighting],
        extent=Extent(size=8, written=8),
        description="Store eight realistic sightings across all areas, at every stage of their decay.",
    )


@strawberry.type
class SightingSubscriptions:
    sighting_reported = listen(
        patterns.SIGHTING_REPORTED,
        resolver=resolve.sighting_reported,
        graphql_type=AsyncGenerator[Sighting, None],
        description="Sightings as they are reported, whoever reports them.",
    )
    watch_alerts = listen(
        patterns.WATCH_ALERTS,
        resolver=resolve.watch_alerts,
        graphql_type=AsyncGenerator[Sighting, None],
        description="Sightings that match what the user watches, also watches made after subscribing.",
    )
