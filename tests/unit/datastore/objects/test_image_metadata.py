"""Pictures are stored without metadata, and look the same."""

import struct
import tracemalloc
import zlib
from datetime import UTC, datetime
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from datastore.photos.metadata import MAX_PARTS, Damaged, Facts, TooManyParts, separate, strip
from tests.support.marked_pictures import (
    KINDS,
    MARKER,
    TEXT,
    chunk,
    decoded_frames,
    encode_image,
    exif_block,
    in_png,
    noise,
    riff,
    segment,
    whole_webp,
    xmp_block,
)

ORIENTATION = 0x0112
MODES = {"JPEG": ("RGB", "L", "CMYK"), "PNG": ("RGB", "L", "RGBA", "P", "LA"), "WEBP": ("RGB", "RGBA")}
EXIF = exif_block()


def facts(exif: Image.Exif) -> Facts:
    return separate(encode_image(noise(), "JPEG", exif=exif)).facts


@pytest.mark.parametrize("turn", [None, 1, 3, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_identifying_metadata_is_removed_and_the_picture_is_the_same(kind: str, turn: int | None) -> None:
    content = KINDS[kind](turn)
    assert MARKER in content

    stripped = strip(content)

    assert MARKER not in stripped
    assert list(decoded_frames(stripped)) == list(decoded_frames(content))
    with Image.open(BytesIO(stripped)) as image:
        assert dict(image.getexif()) == ({} if turn in (None, 1) else {ORIENTATION: turn})
        assert image.info.keys() & {"comment", "xmp", "photoshop", "mp", "Author", "Comment", "Title"} == set()
    assert strip(stripped) == stripped


@pytest.mark.parametrize("kind", KINDS)
def test_a_stripped_picture_is_not_changed_by_stripping(kind: str) -> None:
    assert strip(strip(KINDS[kind](8))) == strip(KINDS[kind](8))
    assert strip(encode_image(noise(), "PNG")) == encode_image(noise(), "PNG")
    assert strip(encode_image(noise(), "WEBP")) == encode_image(noise(), "WEBP")
    assert strip(encode_image(noise(), "JPEG")) == encode_image(noise(), "JPEG")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    width=st.integers(1, 70),
    height=st.integers(1, 70),
    seed=st.integers(0, 2**32),
    mode=st.sampled_from(["RGB", "L", "RGBA", "CMYK", "P", "LA"]),
    kind=st.sampled_from(["JPEG", "PNG", "WEBP"]),
    turn=st.integers(0, 9),
    quality=st.integers(1, 100),
    odd=st.booleans(),
)
def test_any_picture_looks_the_same(
    width: int, height: int, seed: int, mode: str, kind: str, turn: int, quality: int, odd: bool
) -> None:
    image = noise(mode, seed, (width, height))
    if mode not in MODES[kind]:
        image = image.convert("RGB")
    content = encode_image(image, kind, quality=quality, progressive=odd, lossless=odd, exif=exif_block(turn))

    stripped = strip(content)

    before, after = next(decoded_frames(content)), next(decoded_frames(stripped))
    assert after[:-1] == before[:-1]
    assert after[-1] == (turn if 1 <= turn <= 8 else 1)
    assert MARKER not in stripped


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_ends_too_soon_is_damaged(kind: str) -> None:
    content = strip(KINDS[kind](6))
    for length in {*range(0, len(content), 7), *range(max(0, len(content) - 40), len(content))}:
        with pytest.raises(Damaged):
            strip(content[:length])


@pytest.mark.proof
@settings(max_examples=400, deadline=None, derandomize=True)
@given(data=st.data(), kind=st.sampled_from([*KINDS]))
def test_a_changed_file_is_stripped_or_damaged_and_nothing_else(data: st.DataObject, kind: str) -> None:
    content = bytearray(KINDS[kind](6))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    try:
        stripped = strip(bytes(content))
    except Damaged:
        return
    assert strip(stripped) == stripped
    assert len(stripped) <= len(content) + 100


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=400))
def test_any_exif_is_read_or_ignored(block: bytes) -> None:
    for whole in (block, b"II*\0\x08\0\0\0" + block, b"Exif\0\0MM\0*\0\0\0\x08" + block):
        png = encode_image(noise(size=(1, 1)), "PNG")
        assert 1 <= separate(png[:33] + chunk(b"eXIf", whole) + png[33:]).facts.orientation <= 8


def test_invalid_pictures_are_damaged() -> None:
    for content in (
        b"",
        b"hello",
        b"GIF89a",
        b"RIFF\4\0\0\0WAVE",
        b"\xff\xd8",
        b"\x89PNG\r\n\x1a\n",
        b"RIFF\4\0\0\0WEBPx",
    ):
        with pytest.raises(Damaged):
            strip(content)


def test_chunks_that_affect_pixels_must_have_their_size() -> None:
    content = encode_image(noise("L"), "PNG")
    for kind, data in ((b"tRNS", bytes(257)), (b"PLTE", bytes(769)), (b"acTL", b""), (b"IHDR", bytes(13))):
        with pytest.raises(Damaged):
            strip(content[:33] + chunk(kind, data) + content[33:])
    assert strip(content[:33] + chunk(b"gAMA", MARKER) + chunk(b"IEND", MARKER)) == content[:33] + chunk(b"IEND", b"")


def test_a_profile_keeps_its_bytes_and_loses_its_name() -> None:
    content = encode_image(noise(), "PNG")
    profile = b"\0" + zlib.compress(b"a profile")
    named = content[:33] + chunk(b"iCCP", MARKER + b"\0" + profile) + content[33:]

    with Image.open(BytesIO(strip(named))) as image:
        assert image.info["icc_profile"] == b"a profile"
    assert MARKER not in strip(named)


def test_exif_over_several_segments_is_one_block() -> None:
    block, content = EXIF.tobytes(), encode_image(noise(), "JPEG")
    pieces = segment(0xE1, b"Exif\0\0" + block[6:60]) + segment(0xE1, b"Exif\0\0" + block[60:])

    assert separate(content[:20] + pieces + content[20:]).facts == facts(EXIF)


@pytest.mark.parametrize("compressed", [False, True])
def test_png_may_state_its_orientation_in_texts(compressed: bool) -> None:
    block = EXIF.tobytes()
    raw, info = PngInfo(), PngInfo()
    raw.add_text("Raw profile type exif", f"\nexif\n{len(block):8}\n{block.hex()}\n", zip=compressed)
    info.add_itxt("XML:com.adobe.xmp", xmp_block(3).decode(), zip=compressed)

    for texts, turn in ((raw, 6), (info, 3)):
        content = encode_image(noise(), "PNG", pnginfo=texts)
        stripped = strip(content)
        with Image.open(BytesIO(content)) as before, Image.open(BytesIO(stripped)) as after:
            assert (before.getexif()[ORIENTATION], after.getexif()[ORIENTATION]) == (turn, turn)
        assert b"Raw profile" not in stripped


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_an_orientation_in_xmp_counts_where_exif_states_none(kind: str) -> None:
    for exif, turn in ((exif_block(None), 5), (exif_block(2), 2)):
        content = encode_image(noise(), kind, exif=exif, xmp=xmp_block(5))
        with Image.open(BytesIO(strip(content))) as image:
            assert dict(image.getexif()) == {ORIENTATION: turn}


def test_the_time_and_the_camera_are_read() -> None:
    assert facts(exif_block(6)) == Facts(6, datetime(2024, 5, 6, 5, 8, 9, tzinfo=UTC), f"Maker {TEXT} Model 5")
    for taken in (
        "",
        "    :  :     :  :  ",
        "0000:00:00 00:00:00",
        "2024:13:06 07:08:09",
        "2024-05-06 07:08:09",
        "0001:01:01 00:00:00",
    ):
        assert facts(exif_block(taken=taken)).taken_at is None
    no_offset = exif_block()
    no_offset.get_ifd(0x8769).pop(0x9011)
    assert facts(no_offset).taken_at == datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert facts(Image.Exif()) == Facts()


@pytest.mark.parametrize(
    ("make", "model", "camera"),
    [
        ("Canon", "Canon EOS 5D", "Canon EOS 5D"),
        ("NIKON CORPORATION", "NIKON D70", "NIKON CORPORATION NIKON D70"),
        ("Apple", "iPhone 15", "Apple iPhone 15"),
        (" Apple\n", "", "Apple"),
        ("", "Box\x07 1", "Box 1"),
        ("", "", None),
        ("x" * 90, "y" * 90, "x" * 90 + " " + "y" * 9),
    ],
)
def test_maker_and_model_are_one_text(make: str, model: str, camera: str | None) -> None:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110] = make, model

    assert facts(exif).camera == camera


def test_the_number_of_segments_and_chunks_is_bounded() -> None:
    jpeg, png = encode_image(noise(), "JPEG"), encode_image(noise(), "PNG")
    many = [
        jpeg[:2] + segment(0xFE, b"") * MAX_PARTS + jpeg[2:],
        png[:33] + chunk(b"abCd", b"") * MAX_PARTS + png[33:],
        whole_webp(riff(b"abcd", b"") * (MAX_PARTS + 1)),
        whole_webp(riff(b"ANMF", bytes(16) + riff(b"abcd", b"") * MAX_PARTS)),
    ]
    for content in many:
        with pytest.raises(TooManyParts):
            strip(content)


def test_memory_is_bounded_whatever_a_file_holds() -> None:
    """The files have texts that decompress to a thousand times their size, and EXIF entries for the same megabytes."""
    bomb = zlib.compress(bytes(2**26), 9)
    raw = chunk(b"zTXt", b"Raw profile type exif\0\0" + bomb) * 100
    xmp = chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + bomb) * 100
    entries = b"".join(struct.pack(">HHII", tag, 2, 2**20, 0) for tag in range(0x0100, 0x8770))
    tiff = b"MM\0*\0\0\0\x08" + struct.pack(">H", 0x8670) + entries + bytes(2**20)
    png = encode_image(noise(), "PNG")
    content = png[:33] + raw + xmp + chunk(b"eXIf", tiff) + png[33:]

    tracemalloc.start()
    try:
        stripped = strip(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert stripped == png
    assert peak < 16 * 2**20


def test_markers_in_png_are_where_the_test_expects_them() -> None:
    assert in_png(encode_image(noise(), "PNG")).count(MARKER) > 16
