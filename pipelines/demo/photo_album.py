"""The contents of the demo's photo library: users, persons, photos and livestreams. All of them are invented."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from datastore.model.ids import uuid7
from pipelines.demo import photo_backgrounds as draw
from pipelines.demo.pictures import Background, Looks, Sitter

# Ids contain their time of creation, and examples name ids: both are therefore the same in each demo.
BEGAN = datetime(2025, 5, 4, 8, 0, tzinfo=UTC)
VISITOR = "demo@example.com"
MIRA, TEO = "mira@example.com", "teo@example.com"
USERS = {VISITOR: "Robin Vale", MIRA: "Mira Sandoval", TEO: "Teo Lindqvist"}

LOOKS = {
    "Ilse Caldera": Looks((236, 188, 150), (112, 60, 38), "long", (62, 130, 140)),
    "Tomo Arakawa": Looks((242, 206, 168), (38, 34, 40), "short", (216, 104, 72), glasses=True),
    "Bram Adeyemi": Looks((122, 80, 58), (34, 26, 28), "curly", (236, 190, 84)),
    "Odalys Finch": Looks((208, 150, 112), (64, 40, 36), "bun", (150, 90, 150)),
    "Pia Rautio": Looks((250, 218, 194), (232, 190, 110), "long", (206, 70, 84), glasses=True),
    "Ezra Malik": Looks((172, 118, 84), (92, 84, 82), "none", (70, 96, 150), beard=True),
}
PERSON_IDS = {name: uuid7(BEGAN, name) for name in LOOKS}


@dataclass(frozen=True, slots=True)
class Shot:
    """A photo. It is uploaded an hour after it was taken."""

    name: str
    background: Background
    user: str
    #: The time at which it was taken, in days after `BEGAN`.
    days: float
    description: str
    tags: tuple[str, ...]
    sitters: tuple[Sitter, ...] = ()

    @property
    def taken_at(self) -> datetime:
        return BEGAN + timedelta(days=self.days)

    @property
    def uploaded_at(self) -> datetime:
        return self.taken_at + timedelta(hours=1)

    @property
    def image_id(self) -> str:
        return uuid7(self.uploaded_at, self.name)


ILSE, TOMO, BRAM, ODALYS, PIA, EZRA = LOOKS

# Sorted by the time at which they were taken.
SHOTS = (
    Shot("bay", draw.bay, MIRA, 0.5, "The last boat into Lantern Bay.", ("bay", "sunset", "boat")),
    Shot(
        "lighthouse",
        draw.lighthouse,
        VISITOR,
        2.1,
        "Ilse and Tomo below the lighthouse of Kestrel Point.",
        ("lighthouse", "coast", "friends"),
        (Sitter(ILSE, 0.22, 0.56, 0.13), Sitter(TOMO, 0.45, 0.6, 0.13)),
    ),
    Shot("lake", draw.lake, TEO, 4.3, "Two peaks, one lake, no wind at all.", ("mountains", "lake")),
    Shot(
        "studio-odalys",
        draw.studio,
        MIRA,
        6.2,
        "Odalys, who never sits still, sitting still.",
        ("portrait",),
        (Sitter(ODALYS, 0.5, 0.46, 0.24),),
    ),
    Shot("desert", draw.desert, TEO, 9.6, "Forty degrees, and the cactus waves.", ("desert", "sunset")),
    Shot(
        "cafe",
        draw.cafe,
        VISITOR,
        11.4,
        "Coffee at Mira's: Pia explains, Ezra listens.",
        ("café", "friends", "coffee"),
        (Sitter(PIA, 0.34, 0.46, 0.16), Sitter(EZRA, 0.66, 0.46, 0.16)),
    ),
    Shot("balloons", draw.balloons, MIRA, 13.2, "Balloons over the valley, before breakfast.", ("balloons", "morning")),
    Shot(
        "meadow",
        draw.meadow,
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
    Shot("city", draw.city, TEO, 19.8, "Santa Brisa does not sleep, and neither do I.", ("city", "night")),
    Shot("forest", draw.forest, MIRA, 21.2, "Fog in the old forest.", ("forest", "fog", "morning")),
    Shot(
        "terrace",
        draw.terrace,
        VISITOR,
        24.7,
        "Bram and Pia on the terrace, when the lights went on.",
        ("terrace", "evening", "friends"),
        (Sitter(BRAM, 0.36, 0.52, 0.15), Sitter(PIA, 0.64, 0.52, 0.15)),
    ),
    Shot(
        "studio-ezra",
        draw.studio,
        TEO,
        27.1,
        "Ezra, for the cover of his cookbook.",
        ("portrait", "cookbook"),
        (Sitter(EZRA, 0.5, 0.46, 0.24),),
    ),
    Shot(
        "snow",
        draw.snow,
        MIRA,
        30.4,
        "Snow in June, says Ilse, and builds a man of it.",
        ("snow", "winter"),
        (Sitter(ILSE, 0.42, 0.56, 0.15),),
    ),
    Shot("aurora", draw.aurora, VISITOR, 33.9, "The sky over Mirefjord, at last.", ("aurora", "night", "winter")),
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
