"""The types and limits of pictures, and the reasons for the refusal of a file.

`image_processing` decodes them, in a process of its own (`decoder_process`). This module imports no decoder.
"""

from dataclasses import dataclass
from enum import StrEnum

from datastore.errors import BadUserInput
from datastore.photos.metadata import Facts

MAX_PIXELS = 40_000_000
MAX_SIDE = 65_535  # of a JPEG; a PNG may claim more
THUMBNAIL_SIDE, THUMBNAIL_QUALITY = 480, 80
# The relative deviation from the original's aspect ratio that a client's thumbnail may have.
SHAPE_TOLERANCE = 0.05
NO_FACTS = Facts()


class RefusalReason(StrEnum):
    """The reason for the refusal of a file, for programs."""

    NOT_UPLOADED = "NOT_UPLOADED"
    NOT_A_PICTURE = "NOT_A_PICTURE"
    WRONG_TYPE = "WRONG_TYPE"
    WRONG_SHAPE = "WRONG_SHAPE"
    TOO_LARGE = "TOO_LARGE"
    TOO_MANY_PIXELS = "TOO_MANY_PIXELS"
    TOO_MANY_SCANS = "TOO_MANY_SCANS"
    TOO_MANY_CHUNKS = "TOO_MANY_CHUNKS"
    TOO_COSTLY = "TOO_COSTLY"


# The ends of error messages that begin with "The original" or "The thumbnail".
NO_PICTURE = "is no picture that can be read: it is damaged, or something else."
COSTLY = "takes more time or memory to decode than a picture may."


class PictureType(StrEnum):
    """The accepted media types."""

    JPEG = "image/jpeg"
    PNG = "image/png"
    WEBP = "image/webp"

    @property
    def extension(self) -> str:
        """The extension of a file's name."""
        return "jpg" if self is PictureType.JPEG else self.name.lower()


@dataclass(frozen=True, slots=True)
class Picture:
    """The picture in a file. Its size is in pixels, after the orientation is applied."""

    width: int
    height: int
    #: A small JPEG without metadata.
    thumbnail: bytes
    #: The file without its metadata.
    content: bytes = b""
    #: The facts in the removed metadata.
    facts: Facts = NO_FACTS


def refusal(file: str, reason: RefusalReason, why: str) -> BadUserInput:
    """Return the error for a file, the "original" or the "thumbnail"."""
    return BadUserInput(f"The {file} {why}", reason=reason.value, file=file)


def check_shape(thumbnail: Picture, original: Picture) -> None:
    """Raise `BadUserInput` unless a client's thumbnail has the aspect ratio of the original, except for rounding."""
    across, down = thumbnail.width * original.height, thumbnail.height * original.width
    # Rounding may change a side by one pixel: a third of a thumbnail that is 3 pixels wide.
    rounding = max(original.width, original.height)
    if abs(across - down) > max(SHAPE_TOLERANCE * max(across, down), rounding):
        raise refusal("thumbnail", RefusalReason.WRONG_SHAPE, "must be as wide for its height as the original.")
