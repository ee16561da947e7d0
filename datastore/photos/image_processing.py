"""Decoding of uploaded pictures with Pillow: checks and measures them, and creates thumbnails.

A file is untrusted. It is decoded completely, and only as one of three formats. Decoders are complex and their input
may be hostile, so this module runs in a separate process (`decoder_process`), never in the gateway's.
"""

import warnings
from io import BytesIO

from PIL import Image, ImageCms

from datastore.errors import BadUserInput
from datastore.photos.image_segments import check_scans, check_segments
from datastore.photos.image_types import (
    MAX_PIXELS,
    MAX_SIDE,
    NO_PICTURE,
    THUMBNAIL_QUALITY,
    THUMBNAIL_SIDE,
    Picture,
    PictureType,
    RefusalReason,
    refusal,
)
from datastore.photos.metadata import MAX_PARTS, Damaged, Separated, TooManyParts, separate

ORIENTATION = 0x0112  # the EXIF tag
# The transformation for each EXIF orientation except 1, which is upright. https://www.exif.org/Exif2-2.PDF, 4.6.4 A
TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = range(5, 9)  # the orientations in which width and height change places

# Pillow refuses pictures above twice its limit before it allocates memory, and warns above the limit. This module
# checks the size itself and needs no warning.
Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


def without_metadata(file: str, content: bytes) -> Separated:
    """Return a file without its metadata, and the facts that the metadata stated. `file` names it in errors.

    Raises `BadUserInput` for a file that is no complete JPEG, PNG or WebP, or has too many parts.
    """
    check_segments(file, content)
    try:
        return separate(content)
    except TooManyParts:
        raise refusal(
            file, RefusalReason.TOO_MANY_CHUNKS, f"must have at most {MAX_PARTS} segments or chunks."
        ) from None
    except Damaged as problem:
        raise refusal(file, RefusalReason.NOT_A_PICTURE, NO_PICTURE) from problem


def examine(file: str, content: bytes, declared: PictureType) -> Picture:
    """Return the picture in a file, or an animation's first frame. `file` is "original" or "thumbnail", for errors.

    The number of parts and the size in pixels are checked before the file is decoded.
    Raises `BadUserInput` unless the file is a complete picture of the declared type with at most 40 megapixels and
    65,535 pixels on each side, and `MemoryError` if the process lacks the memory to decode it.
    """
    check_segments(file, content)
    try:
        with _opened(content) as image:
            _check(file, image, declared)
            if declared is PictureType.JPEG:
                check_scans(file, content, image.width * image.height)
            if declared is PictureType.PNG:
                # The end may be missing although all pixels are present. The decoders of the other types detect that.
                _opened(content).verify()
            turn, size = _orientation(image), image.size
            thumbnail = _small(image, turn)
    except (BadUserInput, MemoryError):
        raise
    except Image.DecompressionBombError:
        raise _too_large(file) from None
    except Exception as problem:
        # Malicious files make decoders raise many kinds of errors. Any of them means that the file is not a picture.
        raise refusal(file, RefusalReason.NOT_A_PICTURE, NO_PICTURE) from problem
    width, height = size[::-1] if turn in SIDEWAYS else size
    return Picture(width, height, thumbnail)


def _opened(content: bytes) -> Image.Image:
    """Open a file. Read only its header, and try only the decoders of the three types."""
    return Image.open(BytesIO(content), formats=[kind.name for kind in PictureType])


def _check(file: str, image: Image.Image, declared: PictureType) -> None:
    # Many cameras append further pictures to a JPEG. Pillow reports the format of such a file as MPO.
    actual = "JPEG" if image.format == "MPO" else image.format
    if actual != declared.name:
        raise refusal(file, RefusalReason.WRONG_TYPE, f"was announced as {declared.name}, and is {actual}.")
    if max(image.size) > MAX_SIDE:
        raise refusal(file, RefusalReason.TOO_MANY_PIXELS, f"must have at most {MAX_SIDE:,} pixels on each side.")
    if image.width * image.height > MAX_PIXELS:
        raise _too_large(file)


def _too_large(file: str) -> BadUserInput:
    return refusal(file, RefusalReason.TOO_MANY_PIXELS, f"must have at most {MAX_PIXELS // 1_000_000} megapixels.")


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except MemoryError:
        raise
    except Exception:
        return 1  # damaged EXIF data do not invalidate the picture


def _small(image: Image.Image, turn: int) -> bytes:
    # Decode a JPEG at a fraction of its size, which takes less time and memory and still reads the complete file.
    image.draft("RGB", (THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    image.load()
    # Pillow cannot use the faster reduction in two steps for 16-bit grey.
    gap = None if image.mode.startswith("I;16") else 2.0
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), reducing_gap=gap)
    upright = image.transpose(TRANSPOSITIONS[turn]) if turn in TRANSPOSITIONS else image
    file = BytesIO()
    _on_white(_in_srgb(upright)).save(file, "JPEG", quality=THUMBNAIL_QUALITY)
    return file.getvalue()


def _in_srgb(image: Image.Image) -> Image.Image:
    """Return the picture in sRGB by its colour profile. A damaged or unsuitable profile is ignored."""
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
        return image  # a damaged profile does not invalidate the picture
    return seen or image


def _on_white(image: Image.Image) -> Image.Image:
    """Return the picture in RGB on a white background, without EXIF data, comments and profiles."""
    if image.mode.startswith("I"):
        # Pillow would clip 16-bit grey at 255 instead of scaling it to 8 bits.
        return _bare(image.convert("I").point(lambda grey: grey / 256).convert("RGB"))
    if not image.has_transparency_data:
        return _bare(image.convert("RGB"))
    seen = image.convert("RGBA")
    white = Image.new("RGBA", seen.size, "white")
    return _bare(Image.alpha_composite(white, seen).convert("RGB"))


def _bare(image: Image.Image) -> Image.Image:
    image.info = {}
    return image
