"""The contents of the demo's photo library: users, persons, photos and livestreams. All of them are invented."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from datastore.model.ids import uuid7

# Ids contain their time of creation, and examples name ids: both are therefore the same in each demo.
BEGAN = datetime(2025, 5, 4, 8, 0, tzinfo=UTC)
VISITOR = "demo@example.com"
MIRA, TEO = "mira@example.com", "teo@example.com"
USERS = {VISITOR: "Robin Vale", MIRA: "Mira Sandoval", TEO: "Teo Lindqvist"}

ILSE, TOMO, BRAM, ODALYS, PIA, EZRA = PERSONS = (
    "Ilse Caldera",
    "Tomo Arakawa",
    "Bram Adeyemi",
    "Odalys Finch",
    "Pia Rautio",
    "Ezra Malik",
)
PERSON_IDS = {name: uuid7(BEGAN, name) for name in PERSONS}

# The size of each picture in pixels.
WIDTH, HEIGHT = 960, 640
PICTURES = Path(__file__).parent / "data" / "photos"


@dataclass(frozen=True, slots=True)
class Sitter:
    """A person on a picture."""

    #: The name with which the face is tagged.
    name: str
    #: The middle of the face, as fractions of the picture's width and height.
    x: float
    y: float
    #: Half the width of the face, as a fraction of the picture's height.
    size: float

    @property
    def box(self) -> dict[str, float]:
        """The bounding box of the face, in fractions of the picture."""
        across, down = self.size * HEIGHT / WIDTH, self.size * 1.15
        sides = {"left": self.x - across, "top": self.y - down, "width": 2 * across, "height": 2 * down}
        return {side: round(value, 4) for side, value in sides.items()}


@dataclass(frozen=True, slots=True)
class Shot:
    """A photo. It is uploaded an hour after it was taken."""

    #: The name of its file in `PICTURES`, without the suffix.
    name: str
    user: str
    #: The time at which it was taken, in days after `BEGAN`.
    days: float
    description: str
    tags: tuple[str, ...]
    sitters: tuple[Sitter, ...] = ()

    @property
    def picture(self) -> Path:
        return PICTURES / f"{self.name}.jpg"

    @property
    def taken_at(self) -> datetime:
        return BEGAN + timedelta(days=self.days)

    @property
    def uploaded_at(self) -> datetime:
        return self.taken_at + timedelta(hours=1)

    @property
    def image_id(self) -> str:
        return uuid7(self.uploaded_at, self.name)


# Sorted by the time at which they were taken.
SHOTS = (
    Shot(
        "lighthouse",
        VISITOR,
        2.1,
        "Ilse and Tomo below the lighthouse of Kestrel Point.",
        ("lighthouse", "coast", "friends"),
        (Sitter(ILSE, 0.22, 0.56, 0.13), Sitter(TOMO, 0.45, 0.6, 0.13)),
    ),
    Shot("lake", TEO, 4.3, "Two peaks, one lake, no wind at all.", ("mountains", "lake")),
    Shot(
        "cafe",
        VISITOR,
        11.4,
        "Coffee at Mira's: Pia explains, Ezra listens.",
        ("café", "friends", "coffee"),
        (Sitter(PIA, 0.34, 0.46, 0.16), Sitter(EZRA, 0.66, 0.46, 0.16)),
    ),
    Shot(
        "meadow",
        VISITOR,
        16.3,
        "A picnic that became a birthday: four of us in the meadow.",
        ("picnic", "friends", "meadow"),
        (
            Sitter(BRAM, 0.17, 0.54, 0.105),
            Sitter(ILSE, 0.4, 0.58, 0.105),
            Sitter(TOMO, 0.62, 0.54, 0.105),
            Sitter(ODALYS, 0.84, 0.58, 0.105),
        ),
    ),
    Shot(
        "snow",
        MIRA,
        30.4,
        "Snow in June, says Ilse, and builds a man of it.",
        ("snow", "winter"),
        (Sitter(ILSE, 0.42, 0.56, 0.15),),
    ),
    Shot("aurora", VISITOR, 33.9, "The sky over Mirefjord, at last.", ("aurora", "night", "winter")),
)


@dataclass(frozen=True, slots=True)
class Stream:
    """A livestream."""

    #: The time of the announcement, in days after `BEGAN`.
    days: float
    slug: str
    title: str
    description: str
    #: Its start and end, in hours from now.
    begins: float
    ends: float

    @property
    def announced_at(self) -> datetime:
        return BEGAN + timedelta(days=self.days)

    @property
    def livestream_id(self) -> str:
        return uuid7(self.announced_at, self.slug)

    def times(self, now: datetime) -> tuple[datetime, datetime]:
        return now + timedelta(hours=self.begins), now + timedelta(hours=self.ends)


ENDED = Stream(36, "aurora", "The aurora over Mirefjord", "All night, until the sun had it.", -30, -22)
UPCOMING = Stream(37, "balloons", "Balloons at dawn", "Twelve of them, if the wind allows it.", 20, 22)
# Announced last, so it is the latest livestream.
LIVE = Stream(38, "harbour", "The harbour of Lantern Bay", "Boats, gulls, and the tide.", -1, 5)
# The descriptions of the live stream, one after another.
SCENES = (
    "The ferry is in, four minutes early.",
    "A heron stands on the slipway and will not move.",
    "Fog comes in from Kestrel Point.",
    "The market opens: the first crates are on the quay.",
    "Low tide. Two boats sit in the mud and wait.",
    "A wedding party takes all of the pier.",
)
