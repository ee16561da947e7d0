"""The formats of pictures that are accepted, their size, and their thumbnails."""

import asyncio
import gc
import struct
import threading
import tracemalloc
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from datastore.errors import BadUserInput
from datastore.photos import image_segments as segments
from datastore.photos import image_types as pictures
from datastore.photos.decoder import PICTURE_CONCURRENCY, DecoderPool, DecoderProcess
from datastore.photos.image_processing import examine
from datastore.photos.image_types import Picture, PictureType
from tests.support.pictures import claimed_png, jpeg, plain_picture, png
from tests.support.upload_forms import size_and_color

JPEG, PNG, WEBP = PictureType.JPEG, PictureType.PNG, PictureType.WEBP
TOO_LARGE = "The original must have at most 40 megapixels."
DAMAGED = "The original is no picture that can be read: it is damaged, or something else."


def refusal_message(content: bytes, declared: PictureType = JPEG) -> str:
    with pytest.raises(BadUserInput) as caught:
        examine("original", content, declared)
    return str(caught.value)


def claimed_jpeg(width: int, height: int) -> bytes:
    content = jpeg(16, 16)
    at = content.index(b"\xff\xc0") + 5
    return content[:at] + struct.pack(">HH", height, width) + content[at + 4 :]


def claimed_webp(width: int, height: int) -> bytes:
    content = plain_picture("WEBP", 16, 16, lossless=True)
    at = content.index(b"VP8L") + 9
    bits = int.from_bytes(content[at : at + 4], "little") & ~0xFFFFFFF | (width - 1) | (height - 1) << 14
    return content[:at] + bits.to_bytes(4, "little") + content[at + 4 :]


@pytest.mark.parametrize("kind", PictureType)
def test_the_size_and_the_thumbnail_of_a_picture(kind: PictureType) -> None:
    picture = examine("original", plain_picture(kind.name, 1200, 300), kind)

    assert (picture.width, picture.height) == (1200, 300)
    assert size_and_color(picture.thumbnail) == ((480, 120), "red")
    assert Image.open(BytesIO(picture.thumbnail)).format == "JPEG"


def test_a_small_picture_is_not_made_larger() -> None:
    assert size_and_color(examine("original", png(3, 2), PNG).thumbnail)[0] == (3, 2)


@pytest.mark.parametrize("kind", PictureType)
@pytest.mark.parametrize("declared", PictureType)
def test_a_picture_must_have_the_declared_type(kind: PictureType, declared: PictureType) -> None:
    if kind is declared:
        assert examine("original", plain_picture(kind.name, 9, 9), declared).width == 9
    else:
        message = f"The original was announced as {declared.name}, and is {kind.name}."
        assert refusal_message(plain_picture(kind.name, 9, 9), declared) == message


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "ICO", "PPM", "PDF", "TGA"])
def test_other_formats_are_refused(kind: str) -> None:
    assert refusal_message(plain_picture(kind, 16, 16)) == DAMAGED


@pytest.mark.parametrize(
    ("content", "declared"),
    [
        (claimed_png(50_000, 50_000), PNG),
        (claimed_png(8_000, 5_001), PNG),
        (claimed_jpeg(65_000, 65_000), JPEG),
        (claimed_jpeg(8_000, 5_001), JPEG),
        (claimed_webp(16_384, 16_384), WEBP),
        (claimed_webp(8_000, 5_001), WEBP),
    ],
    ids=["png", "png, a little", "jpeg", "jpeg, a little", "webp", "webp, a little"],
)
def test_a_bomb_takes_no_memory(content: bytes, declared: PictureType) -> None:
    before = resident()
    tracemalloc.start()
    assert refusal_message(content, declared) == TOO_LARGE
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most < 2_000_000
    assert resident() - before < 20_000_000


def test_a_jpeg_of_very_many_scans_is_not_decoded() -> None:
    whole = jpeg(40, 40, progressive=True)
    first = whole.index(b"\xff\xda")
    second = whole.index(b"\xff\xda", first + 2)

    assert examine("original", whole, JPEG).width == 40
    bomb = whole[:second] + whole[first:second] * 100 + whole[second:]
    assert refusal_message(bomb) == "The original must have at most 100 scans."


def test_a_large_jpeg_may_have_fewer_scans() -> None:
    """The limit of scans falls with the size, so that decoding takes about the same time."""
    small = jpeg(16, 16, progressive=True)
    at = small.index(b"\xff\xc2") + 5
    whole = small[:at] + struct.pack(">HH", 2_500, 4_000) + small[at + 4 :]
    first = whole.index(b"\xff\xda")
    second = whole.index(b"\xff\xda", first + 2)
    bomb = whole[:second] + whole[first:second] * 75 + whole[second:]

    assert refusal_message(bomb) == "The original must have at most 80 scans."
    assert segments.MAX_SCANNED_PIXELS // pictures.MAX_PIXELS == 20


def hiding_scans(number: int) -> bytes:
    """Return a JPEG with a reserved marker in place of a restart marker, then bytes that look like its segment."""
    whole = jpeg(64, 64)
    tables, frame = whole[2 : whole.index(b"\xff\xc0")], whole.index(b"\xff\xc4")
    header = whole[whole.index(b"\xff\xc0") : frame].replace(b"\x01\x22\x00", b"\x01\x11\x00")
    codes = whole[frame : whole.index(b"\xff\xda")]
    scan = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"
    hidden = (scan + b"\x00") * number
    start = b"\xff\xd8" + tables + header + codes + b"\xff\xdd\x00\x04\x00\x01" + scan
    start += b"\x00" * 4 + b"\xff\x02" + struct.pack(">H", len(hidden) + 2) + hidden
    others = (scan.replace(b"\x01\x01\x00", b"\x01" + bytes([part]) + b"\x11") + b"\x00" * 8 for part in (2, 3))
    return start + b"".join(others) + b"\xff\xd9"


def test_scans_behind_a_marker_that_decoders_skip_are_counted() -> None:
    assert examine("original", hiding_scans(90), JPEG).width == 64
    assert refusal_message(hiding_scans(500)) == "The original must have at most 100 scans."


def test_data_behind_a_picture_are_no_scans_of_it() -> None:
    whole, film = jpeg(40, 40, progressive=True), b"\xff\xda" * 200

    assert examine("original", whole + film, JPEG).width == 40
    # The content of a segment, such as a small picture, is no scan either.
    assert examine("original", jpeg(40, 40, comment=film), JPEG).width == 40


def test_the_scans_of_any_bytes_are_counted_quickly() -> None:
    for content in (b"\xff" * 10**6, b"\xff\x00" * 10**6, b"\xff\xda", b"\xff", b"", b"\xff\xd8\xff\xda\x00\x00"):
        segments.check_scans("original", content, pictures.MAX_PIXELS)
    with pytest.raises(BadUserInput):
        segments.check_scans("original", b"\xff\xd8" + b"\xff\xda\x00\x00" * 2, segments.MAX_SCANNED_PIXELS)


def test_the_scans_among_very_many_segments_are_not_counted_to_the_end() -> None:
    whole = jpeg(40, 40)
    comments = b"\xff\xfe\x00\x02" * segments.MAX_SEGMENTS

    assert examine("original", whole[:2] + comments[:4_000] + whole[2:], JPEG).width == 40
    assert refusal_message(whole[:2] + comments + whole[2:]) == "The original must have at most 10000 segments."


def resident() -> int:
    """Return the resident memory of the process in bytes, because decoders allocate theirs outside of Python."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096
    except OSError:
        return 0  # on systems that do not report it


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # as the module does itself
def test_the_maximum_number_of_pixels_is_accepted() -> None:
    file = BytesIO()
    Image.new("1", (5_000, 8_000)).save(file, "PNG", compress_level=1)

    assert examine("original", file.getvalue(), PNG).height == 8_000


@pytest.mark.parametrize("kind", PictureType)
def test_a_truncated_file_is_refused(kind: PictureType) -> None:
    whole = plain_picture(kind.name, 300, 200)

    for length in (0, 1, 12, len(whole) // 2, len(whole) - 20):
        assert refusal_message(whole[:length], kind) == DAMAGED


@pytest.mark.parametrize(
    ("orientation", "size", "corner"),
    [(1, (40, 20), "red"), (3, (40, 20), "blue"), (6, (20, 40), "red"), (8, (20, 40), "blue"), (99, (40, 20), "red")],
)
def test_a_picture_has_its_displayed_orientation(orientation: int, size: tuple[int, int], corner: str) -> None:
    """In the file, red is on the left and blue on the right. `corner` is the upper left corner as it is displayed."""
    image = Image.new("RGB", (40, 20), "blue")
    image.paste((255, 0, 0), (0, 0, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010F] = "A camera"
    file = BytesIO()
    image.save(file, "JPEG", exif=exif, quality=95)

    picture = examine("original", file.getvalue(), JPEG)

    assert (picture.width, picture.height) == size
    shown = Image.open(BytesIO(picture.thumbnail))
    assert size_and_color(picture.thumbnail) == (size, corner)
    assert (dict(shown.getexif()), b"A camera" in picture.thumbnail) == ({}, False)


@pytest.mark.parametrize("kind", [PNG, WEBP])
def test_the_first_frame_of_an_animation_is_used(kind: PictureType) -> None:
    file = BytesIO()
    frames = [Image.new("RGB", (30, 30), color) for color in ("red", "blue", "blue")]
    frames[0].save(file, kind.name, save_all=True, append_images=frames[1:], duration=100)

    assert size_and_color(examine("original", file.getvalue(), kind).thumbnail) == ((30, 30), "red")


@pytest.mark.parametrize(("mode", "color"), [("RGBA", (0, 0, 0, 0)), ("LA", (0, 0)), ("1", 1), ("I;16", 60_000)])
def test_transparent_and_grey_pictures_get_a_plain_thumbnail(mode: str, color: Any) -> None:
    file = BytesIO()
    Image.new(mode, (30, 30), color).save(file, "PNG")
    shown = Image.open(BytesIO(examine("original", file.getvalue(), PNG).thumbnail))

    assert (shown.mode, min(shown.convert("L").tobytes()) > 200) == ("RGB", True)


def swapped() -> bytes:
    """Return a colour profile that swaps the red and the green of sRGB."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return profile.replace(b"rXYZ", b"none").replace(b"gXYZ", b"rXYZ").replace(b"none", b"gXYZ")


def thumbnail_of(image: Image.Image, kind: PictureType, **more: Any) -> tuple[tuple[int, ...], bytes]:
    """Return the colour of a picture's thumbnail, and the thumbnail."""
    file = BytesIO()
    image.save(file, kind.name, **more)
    content = examine("original", file.getvalue(), kind).thumbnail
    pixel = Image.open(BytesIO(content)).getpixel((5, 5))
    assert isinstance(pixel, tuple)
    return pixel, content


@pytest.mark.parametrize("kind", PictureType)
def test_colours_follow_the_profile(kind: PictureType) -> None:
    pixel, content = thumbnail_of(Image.new("RGB", (30, 30), "red"), kind, icc_profile=swapped())

    assert (pixel[0] < 60, pixel[1] > 200, pixel[2] < 60) == (True, True, True)
    assert Image.open(BytesIO(content)).info.get("icc_profile") is None


def test_a_profile_applies_with_transparency_and_palettes() -> None:
    clear = Image.new("RGBA", (30, 30), (255, 0, 0, 0))
    palette = Image.new("RGB", (30, 30), "red").quantize(4)

    assert min(thumbnail_of(clear, PNG, icc_profile=swapped())[0]) > 250
    assert thumbnail_of(palette, PNG, icc_profile=swapped())[0][1] > 200
    assert min(thumbnail_of(palette, PNG, icc_profile=swapped(), transparency=0)[0]) > 250


@pytest.mark.parametrize("profile", [b"x", swapped()[:200], b"\0" * 500], ids=["short", "cut", "empty"])
def test_a_damaged_profile_is_ignored(profile: bytes) -> None:
    pixel, _ = thumbnail_of(Image.new("RGB", (30, 30), "red"), JPEG, icc_profile=profile)

    assert (pixel[0] > 200, pixel[1] < 60) == (True, True)


@pytest.mark.parametrize(("mode", "color"), [("L", 200), ("CMYK", (0, 0, 0, 55))])
def test_a_profile_of_another_colour_space_is_ignored(mode: str, color: Any) -> None:
    pixel, _ = thumbnail_of(Image.new(mode, (30, 30), color), JPEG, icc_profile=swapped())

    assert all(195 <= part <= 205 for part in pixel)


@pytest.mark.parametrize(
    ("thumbnail", "original", "fits"),
    [
        ((480, 360), (4_000, 3_000), True),
        ((480, 344), (4_000, 3_000), True),
        ((480, 340), (4_000, 3_000), False),
        ((3, 400), (640, 480), False),
        ((360, 480), (4_000, 3_000), False),
        ((480, 3), (16_000, 85), True),  # 2.55
        ((3, 480), (85, 16_000), True),
        ((480, 6), (16_000, 85), False),
        ((1, 1), (3, 2), True),
    ],
)
def test_a_thumbnail_has_the_shape_of_its_original(
    thumbnail: tuple[int, int], original: tuple[int, int], fits: bool
) -> None:
    given = Picture(*thumbnail, b""), Picture(*original, b"")
    if fits:
        pictures.check_shape(*given)
        return
    with pytest.raises(BadUserInput) as caught:
        pictures.check_shape(*given)
    assert caught.value.extensions == {"code": "BAD_USER_INPUT", "reason": "WRONG_SHAPE", "file": "thumbnail"}


def test_sixteen_bits_of_grey_stay_grey() -> None:
    file = BytesIO()
    image = Image.new("I;16", (600, 600), 20_000)
    image.save(file, "PNG")
    shown = Image.open(BytesIO(examine("original", file.getvalue(), PNG).thumbnail))

    assert (shown.mode, shown.size, shown.getpixel((9, 9))) == ("RGB", (480, 480), (78, 78, 78))


@settings(max_examples=30, deadline=None)
@given(
    st.binary(max_size=300)
    | st.builds(
        lambda kind, at, noise: spoiled(kind, at, noise),
        st.sampled_from(PictureType),
        st.floats(0, 1),
        st.binary(max_size=30),
    ),
    st.sampled_from(PictureType),
)
def test_any_bytes_are_a_picture_or_refused(content: bytes, declared: PictureType) -> None:
    try:
        picture = examine("original", content, declared)
    except BadUserInput:
        return
    assert isinstance(picture, Picture)
    assert max(size_and_color(picture.thumbnail)[0]) <= 480


def spoiled(kind: PictureType, at: float, noise: bytes) -> bytes:
    whole = plain_picture(kind.name, 20, 10)
    place = int(at * len(whole))
    return whole[:place] + noise + whole[place + len(noise) :]


class HeldDecoders:
    """A stand-in for decoders that counts concurrent examinations, and holds them until `free` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.going = self.most = 0
        self.free = threading.Event()
        self._guard = threading.Lock()
        monkeypatch.setattr(DecoderProcess, "examine", lambda _, *arguments: self._slow(*arguments))

    def _slow(self, name: str, _content: bytes, _declared: PictureType) -> Picture:
        with self._guard:
            self.going += 1
            self.most = max(self.most, self.going)
        self.free.wait(10)
        with self._guard:
            self.going -= 1
        if name == "No picture":
            raise BadUserInput("It is no picture.")
        return Picture(1, 1, b"")

    async def wait_for_number(self, number: int) -> None:
        async with asyncio.timeout(50):
            while self.going < number:  # noqa: ASYNC110 - threads set no event of the loop
                await asyncio.sleep(0.001)


async def test_few_pictures_are_examined_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoders, pool = HeldDecoders(monkeypatch), DecoderPool()
    tasks = [asyncio.create_task(pool.examine("It", b"", JPEG, user=str(number))) for number in range(6)]
    await decoders.wait_for_number(PICTURE_CONCURRENCY)
    tasks[0].cancel()  # a cancelled caller releases its slot only when its thread has ended
    await asyncio.sleep(0.01)
    assert decoders.going == PICTURE_CONCURRENCY
    decoders.free.set()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert decoders.most == PICTURE_CONCURRENCY


async def test_one_user_cannot_take_all_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither repeated nor cancelled requests take more slots, and a cancelled waiter delays no other."""
    decoders, pool = HeldDecoders(monkeypatch), DecoderPool()
    own = [asyncio.create_task(pool.examine("Mine", b"", JPEG, user="me")) for _ in range(4)]
    await decoders.wait_for_number(1)
    own[0].cancel()
    own[1].cancel()
    await asyncio.sleep(0.01)
    assert decoders.going == 1
    other = asyncio.create_task(pool.examine("Another's", b"", JPEG, user="other"))
    await decoders.wait_for_number(2)
    decoders.free.set()

    assert await asyncio.wait_for(other, 50) == await asyncio.wait_for(own[3], 50) == Picture(1, 1, b"")
    async with pool.file_slot("me"):
        second = asyncio.create_task(pool.file_slot("me").__aenter__())
        async with pool.file_slot("other"):
            await asyncio.sleep(0)
            assert not second.done()
    await asyncio.wait_for(second, 50)


async def test_an_abandoned_examination_reports_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    decoders, pool, loop_errors = HeldDecoders(monkeypatch), DecoderPool(), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: loop_errors.append(context))
    task = asyncio.create_task(pool.examine("No picture", b"", JPEG, user="me"))
    await decoders.wait_for_number(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    decoders.free.set()
    del task
    await asyncio.wait_for(pool.examine("It", b"", JPEG, user="me"), 50)
    gc.collect()

    assert loop_errors == []
