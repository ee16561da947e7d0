"""Eight demo sightings across the areas, of all ages and levels of confidence (BLIP-8)."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from datastore.sightings.reporters import TrustTier, UserProfile
from datastore.sightings.sightings import Sighting, new_sighting

# Description, category (its position in the configured list), minutes ago, confirmations, reporter.
DEMO_SIGHTINGS = (
    ("Queue forming outside the corner shop for the new high-tops", 0, 1, 2, "demo-ada"),
    ("Taco truck parked by the library, short line", 1, 4, 1, "demo-grace"),
    ("Two buskers with a cello near the fountain", 2, 7, 3, "demo-linus"),
    ("Grey tabby asleep on the newspaper box", 3, 11, 0, "demo-ada"),
    ("Fresh mural going up on the warehouse wall", 4, 14, 1, "demo-grace"),
    ("Restock cart rolling in, boxes stacked high", 0, 18, 0, "demo-linus"),
    ("Coffee cart giving away the last croissants", 1, 23, 2, "demo-ada"),
    ("Drum circle starting under the bridge", 2, 27, 0, "demo-grace"),
)
REPORTERS = {
    "demo-ada": (TrustTier.GOLD, 64, 12),
    "demo-grace": (TrustTier.SILVER, 17, 3),
    "demo-linus": (TrustTier.BRONZE, 2, 1),
}


def demo_sightings(
    areas: Sequence[str], categories: Sequence[str], now: datetime, ids: Sequence[str]
) -> list[Sighting]:
    """Return the sightings with these ids, spread over the areas, reported in the half hour before `now`."""
    return [
        new_sighting(
            sighting_id,
            areas[number % len(areas)],
            categories[category % len(categories)],
            description,
            reporter,
            REPORTERS[reporter][0],
            (now - timedelta(minutes=minutes)).replace(microsecond=0),
            confirmations,
        )
        for number, (sighting_id, (description, category, minutes, confirmations, reporter)) in enumerate(
            zip(ids, DEMO_SIGHTINGS, strict=True)
        )
    ]


def demo_reporters(now: datetime) -> list[UserProfile]:
    return [UserProfile(name, tier, total, streak, now.date()) for name, (tier, total, streak) in REPORTERS.items()]
