"""The common types of the three formats: the kept parts of a file, and the errors."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from datastore.photos.metadata.exif import UPRIGHT, Facts, facts_from, orientation_block

# Segments or chunks, including those in the frames of an animation. A picture of 25 MB has some hundreds; a PNG in
# chunks of 4 KB has 6,400.
MAX_PARTS = 10_000
# JPEG may divide EXIF into several segments, and PNG may compress it.
MAX_METADATA_BYTES = 2**20


class Damaged(ValueError):
    """The bytes are no complete JPEG, PNG or WebP file."""


class TooManyParts(Damaged):
    """The file has more than `MAX_PARTS` segments or chunks."""

    def __init__(self) -> None:
        super().__init__(f"The file has more than {MAX_PARTS:,} segments or chunks.")


class Separated(NamedTuple):
    """A picture without its metadata, and the facts in the metadata."""

    content: bytes
    facts: Facts


@dataclass(slots=True)
class Parts:
    """The kept parts of a file in order, and the blocks of metadata that contain facts."""

    kept: list[bytes | memoryview] = field(default_factory=list)
    #: The index at which a block with the orientation is inserted; None for the end.
    orientation_index: int | None = None
    exif: bytearray = field(default_factory=bytearray)
    xmp: bytes = b""

    def keep(self, *parts: bytes | memoryview) -> None:
        """Add parts to the kept ones."""
        self.kept += parts

    def add_exif(self, block: bytes | memoryview) -> None:
        """Add a piece of the EXIF block, up to `MAX_METADATA_BYTES` in all."""
        self.exif += block[: MAX_METADATA_BYTES - len(self.exif)]

    def orient(self, block: Callable[[bytes], bytes]) -> Facts:
        """Return the facts. If the picture is not upright, insert the orientation in a block made by `block`."""
        facts = facts_from(bytes(self.exif), self.xmp)
        if facts.orientation != UPRIGHT:
            index = len(self.kept) if self.orientation_index is None else self.orientation_index
            self.kept.insert(index, block(orientation_block(facts.orientation)))
        return facts

    def joined(self) -> bytes:
        """Return the parts as one file."""
        return b"".join(self.kept)
