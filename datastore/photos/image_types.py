"""The types and limits of pictures, and the reasons for refusing a file.

`image_processing` decodes them, in a process of its own (`decoder_process`). This module imports no decoder.
"""

from dataclasses import dataclass
from enum import StrEnum

from datastore.errors import BadUserInput
from datastore.photos.metadata import Facts

MOST_PIXELS = 40_000_000
LONGEST_SIDE = 65_535  # of a JPEG; a PNG may claim more
THUMBNAIL_SIDE, THUMBNAIL_QUALITY = 480, 80
# So much wider or higher than the original a client's thumbnail may be.
MOST_OFF = 0.05
NO_FACTS = Facts()


class RefusalReason(StrEnum):
    """Why a file is refused, for programs."""

    NOT_UPLOADED = "NOT_UPLOADED"
    NOT_A_PICTURE = "NOT_A_PICTURE"
    WRONG_TYPE = "WRONG_TYPE"
    WRONG_SHAPE = "WRONG_SHAPE"
    TOO_LARGE = "TOO_LARGE"
    TOO_MANY_PIXELS = "TOO_MANY_PIXELS"
    TOO_MANY_SCANS = "TOO_MANY_SCANS"
    TOO_MANY_CHUNKS = "TOO_MANY_CHUNKS"
    TOO_COSTLY = "TOO_COSTLY"


# Why a file is refused, in words: what follows "The original".
NO_PICTURE = "is no picture that can be read: it is damaged, or something else."
COSTLY = "takes more time or memory to decode than a picture may."


class PictureType(StrEnum):
    """The types that are taken, as Content-Type has them."""

    JPEG = "image/jpeg"
    PNG = "image/png"
    WEBP = "image/webp"

    @property
    def ending(self) -> str:
        """Of a file's name."""
        return "jpg" if self is PictureType.JPEG else self.name.lower()


@dataclass(frozen=True, slots=True)
class Picture:
    """What a file shows: its size in pixels as it is looked at, and a small JPEG of it that tells nothing else.

    `content` is the file without its metadata, and `facts` are those that the metadata stated.
    """

    width: int
    height: int
    thumbnail: bytes
    content: bytes = b""
    facts: Facts = NO_FACTS


def refused(file: str, reason: RefusalReason, why: str) -> BadUserInput:
    """What is wrong with a file, the "original" or the "thumbnail"."""
    return BadUserInput(f"The {file} {why}", reason=reason.value, file=file)


def check_shape(thumbnail: Picture, original: Picture) -> None:
    """Raises `BadUserInput` unless a client's thumbnail may show the whole original, but for what rounding takes."""
    across, down = thumbnail.width * original.height, thumbnail.height * original.width
    # One pixel more or less: of a thumbnail that is 3 pixels wide it is a third.
    rounding = max(original.width, original.height)
    if abs(across - down) > max(MOST_OFF * max(across, down), rounding):
        raise refused("thumbnail", RefusalReason.WRONG_SHAPE, "must be as wide for its height as the original.")
