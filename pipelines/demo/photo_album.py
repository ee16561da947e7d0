"""The contents of the demo's photo library, from `data/album.json`. All persons are invented."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from datastore.model.ids import uuid7

# Ids contain their time of creation, and examples name ids: both are therefore the same in each demo.
BEGAN = datetime(2025, 5, 4, 8, 0, tzinfo=UTC)
VISITOR = "demo@example.com"
# The size of each picture in pixels.
WIDTH, HEIGHT = 960, 640
DATA = Path(__file__).parent / "data"
PICTURES = DATA / "photos"


class Sitter(msgspec.Struct, frozen=True):
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


class Shot(msgspec.Struct, frozen=True):
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


class Stream(msgspec.Struct, frozen=True):
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


class _Album(msgspec.Struct, frozen=True):
    #: The names of the users, by email.
    users: dict[str, str]
    persons: tuple[str, ...]
    #: Sorted by the time at which they were taken.
    shots: tuple[Shot, ...]
    ended: Stream
    upcoming: Stream
    #: Announced last, so it is the latest livestream.
    live: Stream
    #: The descriptions of the live stream, one after another.
    scenes: tuple[str, ...]


_ALBUM = msgspec.json.decode((DATA / "album.json").read_bytes(), type=_Album)
USERS, SHOTS, SCENES = _ALBUM.users, _ALBUM.shots, _ALBUM.scenes
PERSON_IDS = {name: uuid7(BEGAN, name) for name in _ALBUM.persons}
ENDED, UPCOMING, LIVE = _ALBUM.ended, _ALBUM.upcoming, _ALBUM.live
