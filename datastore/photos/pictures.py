"""What is in the files that are uploaded: checked, measured, and made small.

Nothing of a file is believed: it is read by Pillow whole, and only as one of three formats.
"""

import asyncio
import re
import warnings
from asyncio import Future, Lock, Semaphore
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from io import BytesIO
from weakref import WeakValueDictionary

from PIL import Image, ImageCms

from datastore.errors import BadUserInput

MOST_PIXELS = 40_000_000
THUMBNAIL_SIDE, THUMBNAIL_QUALITY = 480, 80
# A file is held in memory as long as it is looked at, and while it is decoded its pixels are: those of 40 megapixels
# take 160 MB, and some 650 MB in all as WebP.
FILES_AT_ONCE, PICTURES_AT_ONCE = 8, 2
# A JPEG is decoded scan by scan, each over the whole picture: cameras write one, a progressive one has ten or so, and
# one of thousands keeps a decoder busy for minutes. All together they may go over so many pixels: for about a second.
MOST_SCANS, MOST_SCANNED = 100, 800_000_000
# Scans and other segments are counted in Python, while nothing else runs: of so many for some milliseconds. A picture
# of 25 MB with all that cameras and profiles tell has some hundreds.
MOST_SEGMENTS = 10_000
# So much wider or higher than the original a client's thumbnail may be.
MOST_OFF = 0.05
# https://www.w3.org/Graphics/JPEG/itu-t81.pdf, table B.1: the markers that have a segment. Those up to 0xBF are
# reserved: decoders that look for a restart marker pass over such a one alone, and read on in its segment.
MARKER, SCAN, END = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]"), b"\xff\xda", b"\xff\xd9"
ORIENTATION = 0x0112  # the EXIF tag
# How a picture is turned to be looked at; not for 1, which is upright. https://www.exif.org/Exif2-2.PDF, 4.6.4 A
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
LYING = range(5, 9)  # the orientations in which width and height change places

# Pillow refuses twice its limit before it takes memory for a picture, and warns from the limit on: we need no warning.
Image.MAX_IMAGE_PIXELS = MOST_PIXELS // 2
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class Reason(StrEnum):
    """Why a file is refused, for programs."""

    NOT_UPLOADED = "NOT_UPLOADED"
    NOT_A_PICTURE = "NOT_A_PICTURE"
    WRONG_TYPE = "WRONG_TYPE"
    WRONG_SHAPE = "WRONG_SHAPE"
    TOO_LARGE = "TOO_LARGE"
    TOO_MANY_PIXELS = "TOO_MANY_PIXELS"
    TOO_MANY_SCANS = "TOO_MANY_SCANS"


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
    """What a file shows: its size in pixels as it is looked at, and a small JPEG of it that tells nothing else."""

    width: int
    height: int
    thumbnail: bytes


class Pictures:
    """Looks at pictures in threads, few at once, so that many uploads do not take all memory. One for the process.

    Of one user (`whose`) one file is held and one picture decoded at a time, so that nobody takes all places.
    """

    def __init__(self) -> None:
        self._files = Semaphore(FILES_AT_ONCE)
        self._pixels = Semaphore(PICTURES_AT_ONCE)
        # As long as somebody waits for them or has them.
        self._holding: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._looking: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def room(self, whose: str) -> AsyncIterator[None]:
        """Wait for room to hold a file in memory."""
        async with self._holding.setdefault(whose, Lock()), self._files:
            yield

    async def examine(self, file: str, content: bytes, declared: PictureType, *, whose: str) -> Picture:
        """See the function. The places of a caller that goes away are free when its thread has ended."""
        turn = self._looking.setdefault(whose, Lock())
        await turn.acquire()
        try:
            await self._pixels.acquire()
        except BaseException:
            turn.release()
            raise
        work = asyncio.ensure_future(asyncio.to_thread(examine, file, content, declared))
        work.add_done_callback(partial(self._ended, turn))
        return await asyncio.shield(work)

    def _ended(self, turn: Lock, work: Future[Picture]) -> None:
        self._pixels.release()
        turn.release()
        if not work.cancelled():
            work.exception()  # it was raised to the caller; one that has gone away leaves nobody to hear of it


def refused(file: str, reason: Reason, why: str) -> BadUserInput:
    """What is wrong with a file, the "original" or the "thumbnail"."""
    return BadUserInput(f"The {file} {why}", reason=reason.value, file=file)


def check_shape(thumbnail: Picture, original: Picture) -> None:
    """Raises `BadUserInput` unless a client's thumbnail may show the whole original, but for what rounding takes."""
    across, down = thumbnail.width * original.height, thumbnail.height * original.width
    # One pixel more or less: of a thumbnail that is 3 pixels wide it is a third.
    rounding = max(original.width, original.height)
    if abs(across - down) > max(MOST_OFF * max(across, down), rounding):
        raise refused("thumbnail", Reason.WRONG_SHAPE, "must be as wide for its height as the original.")


def examine(file: str, content: bytes, declared: PictureType) -> Picture:
    """What a file shows; of an animated one its first frame. `file` is "original" or "thumbnail", for errors.

    Raises `BadUserInput` for what is no whole picture of the declared type with at most 40 megapixels; the size is
    looked up before any memory is taken for pixels.
    """
    try:
        with _opened(content) as image:
            _check(file, image, declared)
            if declared is PictureType.JPEG:
                _check_scans(file, content, image.width * image.height)
            if declared is PictureType.PNG:
                # Its end may be missing with all pixels there; the others' decoders notice that by themselves.
                _opened(content).verify()
            turn, size = _orientation(image), image.size
            thumbnail = _small(image, turn)
    except BadUserInput:
        raise
    except Image.DecompressionBombError:
        raise _too_large(file) from None
    except Exception as problem:
        # Decoders fail in many ways on what was made to make them fail; whichever it is, it is no picture.
        why = "is no picture that can be read: it is damaged, or something else."
        raise refused(file, Reason.NOT_A_PICTURE, why) from problem
    width, height = size[::-1] if turn in LYING else size
    return Picture(width, height, thumbnail)


def _opened(content: bytes) -> Image.Image:
    """No more than the header is read, and no other decoder than those of the three types is tried."""
    return Image.open(BytesIO(content), formats=[kind.name for kind in PictureType])


def _check(file: str, image: Image.Image, declared: PictureType) -> None:
    # Many cameras put further pictures behind the first in a JPEG, which Pillow calls MPO then.
    found = "JPEG" if image.format == "MPO" else image.format
    if found != declared.name:
        raise refused(file, Reason.WRONG_TYPE, f"was announced as {declared.name}, and is {found}.")
    if image.width * image.height > MOST_PIXELS:
        raise _too_large(file)


def _too_large(file: str) -> BadUserInput:
    return refused(file, Reason.TOO_MANY_PIXELS, f"must have at most {MOST_PIXELS // 1_000_000} megapixels.")


def _check_scans(file: str, content: bytes, pixels: int) -> None:
    most = min(MOST_SCANS, MOST_SCANNED // pixels)
    scans = 0
    for segments, marker in enumerate(_markers(content), 1):
        scans += marker == SCAN
        if scans > most:
            raise refused(file, Reason.TOO_MANY_SCANS, f"must have at most {most} scans.")
        if segments > MOST_SEGMENTS:
            raise refused(file, Reason.TOO_MANY_SCANS, f"must have at most {MOST_SEGMENTS} segments.")


def _markers(content: bytes) -> Iterator[bytes]:
    """The markers up to the end of the first picture: behind it there may be further ones, or a film.

    What segments hold is passed over; in the data of scans there are none but those that have no segment.
    """
    at = 2
    while (found := MARKER.search(content, at)) is not None and found[0] != END:
        yield found[0]
        at = found.end() + int.from_bytes(content[found.end() : found.end() + 2])


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:
        return 1  # a picture is one whatever its camera says of it


def _small(image: Image.Image, turn: int) -> bytes:
    # A JPEG is decoded at a fraction of its size: as whole, and for less time and memory.
    image.draft("RGB", (THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    image.load()
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    upright = image.transpose(TURNS[turn]) if turn in TURNS else image
    file = BytesIO()
    _on_white(_in_srgb(upright)).save(file, "JPEG", quality=THUMBNAIL_QUALITY)
    return file.getvalue()


def _in_srgb(image: Image.Image) -> Image.Image:
    """With the colours that its profile means. One that is damaged, or of other colours, counts as none."""
    profile = image.info.get("icc_profile")
    if not profile:
        return image
    if image.has_transparency_data:
        image = image.convert("RGBA")
    elif image.mode == "P":
        image = image.convert("RGB")
    mode = image.mode if image.mode in ("RGB", "RGBA") else "RGB"
    try:
        seen = ImageCms.profileToProfile(image, BytesIO(profile), ImageCms.createProfile("sRGB"), outputMode=mode)
    except Exception:
        return image  # a picture is one whatever is said of its colours
    return seen or image


def _on_white(image: Image.Image) -> Image.Image:
    """In plain colours, without what an image carries along: its EXIF, comments and profiles stay behind."""
    if image.mode.startswith("I"):
        # 16 bits of grey, which Pillow would cut off at 255 instead of making them 8.
        return _bare(image.convert("I").point(lambda grey: grey / 256).convert("RGB"))
    if not image.has_transparency_data:
        return _bare(image.convert("RGB"))
    seen = image.convert("RGBA")
    white = Image.new("RGBA", seen.size, "white")
    return _bare(Image.alpha_composite(white, seen).convert("RGB"))


def _bare(image: Image.Image) -> Image.Image:
    image.info = {}
    return image
