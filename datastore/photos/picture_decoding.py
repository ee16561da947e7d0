"""Decodes uploaded pictures with Pillow: checks them, measures them, and makes small ones of them.

Nothing of a file is believed: it is read whole, and only as one of three formats. Decoders are large, and their input
is hostile, so this runs in a process of its own (`decoder_process`) and never in the gateway's.
"""

import warnings
from io import BytesIO

from PIL import Image, ImageCms

from datastore.errors import BadUserInput
from datastore.photos.metadata import MOST_PARTS, Damaged, Separated, TooManyParts, separate
from datastore.photos.pictures import (
    LONGEST_SIDE,
    MOST_PIXELS,
    NO_PICTURE,
    THUMBNAIL_QUALITY,
    THUMBNAIL_SIDE,
    Picture,
    PictureType,
    Reason,
    refused,
)
from datastore.photos.segments import check_scans, check_segments

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


def without_metadata(file: str, content: bytes) -> Separated:
    """Return a file without its metadata, and the facts that the metadata stated. `file` names it in errors.

    Raises `BadUserInput` for a file that is no whole JPEG, PNG or WebP, or has too many parts.
    """
    check_segments(file, content)
    try:
        return separate(content)
    except TooManyParts:
        raise refused(file, Reason.TOO_MANY_CHUNKS, f"must have at most {MOST_PARTS} segments or chunks.") from None
    except Damaged as problem:
        raise refused(file, Reason.NOT_A_PICTURE, NO_PICTURE) from problem


def examine(file: str, content: bytes, declared: PictureType) -> Picture:
    """What a file shows; of an animated one its first frame. `file` is "original" or "thumbnail", for errors.

    The number of a file's parts, and its size in pixels, are looked up before it is decoded.
    Raises `BadUserInput` for what is no whole picture of the declared type with at most 40 megapixels and 65,535 pixels
    on each side, and `MemoryError` when the process has not enough memory to decode it.
    """
    check_segments(file, content)
    try:
        with _opened(content) as image:
            _check(file, image, declared)
            if declared is PictureType.JPEG:
                check_scans(file, content, image.width * image.height)
            if declared is PictureType.PNG:
                # Its end may be missing with all pixels there; the others' decoders notice that by themselves.
                _opened(content).verify()
            turn, size = _orientation(image), image.size
            thumbnail = _small(image, turn)
    except (BadUserInput, MemoryError):
        raise
    except Image.DecompressionBombError:
        raise _too_large(file) from None
    except Exception as problem:
        # Decoders fail in many ways on what was made to make them fail; whichever it is, it is no picture.
        raise refused(file, Reason.NOT_A_PICTURE, NO_PICTURE) from problem
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
    if max(image.size) > LONGEST_SIDE:
        raise refused(file, Reason.TOO_MANY_PIXELS, f"must have at most {LONGEST_SIDE:,} pixels on each side.")
    if image.width * image.height > MOST_PIXELS:
        raise _too_large(file)


def _too_large(file: str) -> BadUserInput:
    return refused(file, Reason.TOO_MANY_PIXELS, f"must have at most {MOST_PIXELS // 1_000_000} megapixels.")


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except MemoryError:
        raise
    except Exception:
        return 1  # a picture is one whatever its camera says of it


def _small(image: Image.Image, turn: int) -> bytes:
    # A JPEG is decoded at a fraction of its size: as whole, and for less time and memory.
    image.draft("RGB", (THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    image.load()
    # Pillow cannot make 16 bits of grey small in two steps, which is quicker.
    gap = None if image.mode.startswith("I;16") else 2.0
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), reducing_gap=gap)
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
    except MemoryError:
        raise
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
