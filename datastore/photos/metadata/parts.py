"""What the three formats have in common: the parts of a file that stay, and the errors."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from datastore.photos.metadata.exif import UPRIGHT, Facts, facts_from, stating

# Segments or chunks, those inside the frames of an animation included. A picture of 25 MB has some hundreds; an
# encoder that writes PNG in pieces of 4 KB comes to 6,400.
MOST_PARTS = 10_000
# JPEG may spread EXIF over several segments, and PNG may hold it compressed.
MOST_METADATA_BYTES = 2**20


class Damaged(ValueError):
    """The bytes are no whole JPEG, PNG or WebP file."""


class TooManyParts(Damaged):
    """The file has more than `MOST_PARTS` segments or chunks."""

    def __init__(self) -> None:
        super().__init__(f"The file has more than {MOST_PARTS:,} segments or chunks.")


class Separated(NamedTuple):
    """A picture without its metadata, and the facts that the metadata stated."""

    content: bytes
    facts: Facts


@dataclass(slots=True)
class Parts:
    """The parts of a file that stay, in their order, and the blocks of metadata that state facts.

    `place` is where a block with the orientation goes among the parts, the end if it is None.
    """

    kept: list[bytes | memoryview] = field(default_factory=list)
    place: int | None = None
    exif: bytearray = field(default_factory=bytearray)
    xmp: bytes = b""

    def keep(self, *parts: bytes | memoryview) -> None:
        """Add parts to those that stay."""
        self.kept += parts

    def add_exif(self, block: bytes | memoryview) -> None:
        """Add a piece of the EXIF block. What exceeds the bound is left out."""
        self.exif += block[: MOST_METADATA_BYTES - len(self.exif)]

    def orient(self, block: Callable[[bytes], bytes]) -> Facts:
        """Add `block`, made of the smallest EXIF, where the picture is not upright. Return the facts."""
        facts = facts_from(bytes(self.exif), self.xmp)
        if facts.orientation != UPRIGHT:
            place = len(self.kept) if self.place is None else self.place
            self.kept.insert(place, block(stating(facts.orientation)))
        return facts

    def joined(self) -> bytes:
        """Return the parts as one file."""
        return b"".join(self.kept)
