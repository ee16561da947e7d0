"""Decoder processes for uploaded pictures: their limits, and their end at any time."""

import asyncio
import io
import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from PIL import Image

from datastore.errors import DomainError, Unavailable
from datastore.photos.decoder import DecoderLimits, DecoderPool, DecoderProcess
from datastore.photos.decoder_messages import BadMessage, read_message, write_message
from datastore.photos.image_segments import MAX_SEGMENTS
from datastore.photos.image_types import PictureType
from tests.support.marked_pictures import chunk
from tests.support.photo_items import photo_user, put_library_items
from tests.support.pictures import jpeg, plain_picture, png
from tests.support.served import Served
from tests.support.store_engines import ROOT
from tests.support.upload_forms import complete_photo, size_and_color
from tests.support.upload_steps import upload_original

JPEG, PNG, WEBP = PictureType.JPEG, PictureType.PNG, PictureType.WEBP
FAULTY = (sys.executable, "-B", "-m", "tests.support.faulty_decoder")
ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere these limits are not kept")

Make = Callable[..., DecoderProcess]


@pytest.fixture
def make() -> Iterator[Make]:
    """Yield a function that creates decoders, and close them at the end."""
    decoders = []

    def make(*command: str, **limits: Any) -> DecoderProcess:
        decoders.append(DecoderProcess(DecoderLimits(**limits), (*FAULTY, *command)))
        return decoders[-1]

    yield make
    for decoder in decoders:
        decoder.close()


def failure(decoder: DecoderProcess, content: bytes, declared: PictureType = JPEG) -> DomainError:
    with pytest.raises(DomainError) as caught:
        decoder.examine("original", content, declared)
    return caught.value


def error_facts(error: DomainError) -> tuple[str, object, bool]:
    """Return the code, the reason and the retryability of an error."""
    details = error.extensions
    return error.code, details.get("reason"), details.get("retryable", False)


def with_chunks(*extra: bytes, before: bytes = b"IDAT") -> bytes:
    whole = png()
    at = whole.index(before) - 4
    return whole[:at] + b"".join(extra) + whole[at:]


def with_riff_chunks(number: int) -> bytes:
    whole = plain_picture("WEBP", 20, 20, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0")
    body = whole[8:] + (b"abcd" + struct.pack("<I", 0)) * number
    return whole[:4] + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize(
    ("content", "declared", "reason", "message"),
    [
        (with_chunks(*[chunk(b"abCd")] * MAX_SEGMENTS), PNG, "TOO_MANY_CHUNKS", "10000 chunks"),
        (with_chunks(*[chunk(b"IDAT")] * MAX_SEGMENTS, before=b"IEND"), PNG, "TOO_MANY_CHUNKS", "10000 chunks"),
        (with_chunks(*[chunk(b"tEXt", b"a\0b")] * MAX_SEGMENTS), PNG, "TOO_MANY_CHUNKS", "10000 chunks"),
        (with_chunks(*[chunk(b"abCd")] * MAX_SEGMENTS), JPEG, "TOO_MANY_CHUNKS", "10000 chunks"),
        (with_riff_chunks(MAX_SEGMENTS), WEBP, "TOO_MANY_CHUNKS", "10000 chunks"),
        # Pillow reads all of these in Python before it knows the size of the picture.
        (jpeg().replace(b"\xff\xdb", b"\xff" * MAX_SEGMENTS + b"\xff\xdb", 1), JPEG, "TOO_MANY_SCANS", "10000 seg"),
        (jpeg().replace(b"\xff\xdb", b"\xff\x00" * MAX_SEGMENTS + b"\xff\xdb", 1), JPEG, "TOO_MANY_SCANS", "10000 s"),
        (jpeg().replace(b"\xff\xdb", b"\xff\xd0" * MAX_SEGMENTS + b"\xff\xdb", 1), JPEG, "TOO_MANY_SCANS", "10000 s"),
        (jpeg().replace(b"\xff\xdb", b"\xff\xe5\0\2" * MAX_SEGMENTS + b"\xff\xdb", 1), JPEG, "TOO_MANY_SCANS", "100"),
        (jpeg().replace(b"\xff\xdb", b"\x00" * MAX_SEGMENTS + b"\xff\xdb", 1), JPEG, "TOO_MANY_SCANS", "10000 s"),
    ],
    ids=["chunks", "IDATs", "texts", "declared as JPEG", "RIFF", "fill", "stuffing", "restarts", "segments", "junk"],
)
def test_a_file_of_very_many_parts_is_refused_before_it_is_decoded(
    make: Make, content: bytes, declared: PictureType, reason: str, message: str
) -> None:
    error = failure(make(), content, declared)

    assert (error_facts(error), message in str(error)) == (("BAD_USER_INPUT", reason, False), True)


def test_pictures_of_many_parts_are_decoded(make: Make) -> None:
    decoder, some = make(), MAX_SEGMENTS // 2

    for content, declared in (
        (with_chunks(*[chunk(b"abCd")] * some), PNG),
        (with_riff_chunks(some), WEBP),
        (jpeg().replace(b"\xff\xdb", b"\xff" * some + b"\xff\xdb", 1), JPEG),
    ):
        assert decoder.examine("original", content, declared).width in (20, 60)


@pytest.mark.parametrize("kind", PictureType)
def test_a_decoder_returns_the_result_of_the_function(make: Make, kind: PictureType) -> None:
    picture = make().examine("original", plain_picture(kind.name, 1200, 300), kind)

    assert (picture.width, picture.height, size_and_color(picture.thumbnail)) == (1200, 300, ((480, 120), "red"))


def test_large_grey_pictures_of_sixteen_bits_get_a_thumbnail(make: Make) -> None:
    file = io.BytesIO()
    Image.new("I;16", (4_000, 2_000), 20_000).save(file, "PNG", compress_level=1)

    assert make().examine("original", file.getvalue(), PNG).width == 4_000


@pytest.mark.proof
@ON_LINUX
def test_forty_megapixels_of_webp_fit_into_the_memory_of_a_decoder() -> None:
    """The picture is lossless, has transparency, and is nearly as large as files may be."""
    content = plain_picture("WEBP", 8_000, 5_000, lossless=True, method=0)
    size = len(content) + 8 + 24 * 2**20
    content = content[:4] + struct.pack("<I", size - 8) + content[8:] + b"abcd" + struct.pack("<I", 24 * 2**20)
    decoder = DecoderProcess()
    try:
        picture = decoder.examine("original", content + bytes(24 * 2**20), WEBP)
    finally:
        decoder.close()

    assert (picture.width, picture.height) == (8_000, 5_000)


@pytest.mark.proof
@ON_LINUX
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"spin", ("BAD_USER_INPUT", "TOO_COSTLY", False)),
        (b"take %d" % 2**31, ("BAD_USER_INPUT", "TOO_COSTLY", False)),
        (b"crash", ("BAD_USER_INPUT", "NOT_A_PICTURE", False)),
        (b"sleep", ("UNAVAILABLE", None, True)),
        (b"killed", ("UNAVAILABLE", None, True)),
        (b"exit", ("UNAVAILABLE", None, True)),
        (b"facts", ("UNAVAILABLE", None, True)),
        (b"garbage", ("UNAVAILABLE", None, True)),
    ],
    ids=lambda value: value.decode().split()[0] if isinstance(value, bytes) else "",
)
def test_a_decoder_that_fails_costs_its_caller_one_error(make: Make, content: bytes, expected: Any) -> None:
    decoder = make(cpu_seconds=1, seconds=60.0)
    decoder.examine("original", jpeg(), JPEG)
    first, limits = decoder.pid, decoder._limits

    if content == b"sleep":  # this time also passes on a slow machine
        decoder._limits = replace(limits, seconds=0.1)
    assert error_facts(failure(decoder, content)) == expected
    decoder._limits = limits
    assert decoder.examine("original", jpeg(30, 20), JPEG).width == 30
    assert decoder.pid != first
    assert is_gone(first)


def is_gone(pid: int | None) -> bool:
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_invalid_pictures_do_not_end_the_decoder(make: Make) -> None:
    decoder = make()
    decoder.examine("original", jpeg(), JPEG)
    first = decoder.pid

    for content in (b"", b"x", jpeg()[:100], png()):
        assert error_facts(failure(decoder, content))[0] == "BAD_USER_INPUT"
    assert decoder.examine("original", jpeg(), JPEG).width == 60
    assert decoder.pid == first


def test_a_decoder_that_died_in_between_is_replaced_without_an_error(make: Make) -> None:
    decoder = make()
    decoder.examine("original", jpeg(), JPEG)
    assert decoder.pid is not None
    os.kill(decoder.pid, signal.SIGKILL)
    os.waitid(os.P_PID, decoder.pid, os.WEXITED | os.WNOWAIT)

    assert decoder.examine("original", jpeg(), JPEG).width == 60


def test_a_process_decodes_a_limited_number_of_pictures(make: Make) -> None:
    decoder, pids = make(pictures=2), []
    for _ in range(4):
        decoder.examine("original", jpeg(), JPEG)
        pids.append(decoder.pid)

    assert [pids[0] == pids[1], pids[1] == pids[2], pids[2] == pids[3]] == [True, False, True]


@pytest.mark.proof
@pytest.mark.parametrize("fault", ["exit", "sleep", "missing"])
def test_a_decoder_that_does_not_start_is_reported(fault: str) -> None:
    command = ("/nowhere/python",) if fault == "missing" else (*FAULTY, fault)
    decoder = DecoderProcess(DecoderLimits(start_seconds=1.0 if fault == "sleep" else 60.0), command)

    for _ in range(2):
        assert error_facts(failure(decoder, jpeg())) == ("UNAVAILABLE", None, True)
    decoder.close()


def test_output_of_libraries_is_no_result(make: Make) -> None:
    decoder = make()

    assert error_facts(failure(decoder, b"print " + b"x" * 1000))[1] == "NOT_A_PICTURE"
    assert decoder.examine("original", jpeg(), JPEG).width == 60


@ON_LINUX
def test_a_decoder_has_no_secrets_and_few_rights(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_SECRET", "a secret that is long enough for a gateway")
    decoder = make()
    decoder.examine("original", jpeg(), JPEG)
    here = Path(f"/proc/{decoder.pid}")
    limits = dict(line.split("  ", 1) for line in (here / "limits").read_text().splitlines()[1:])

    assert b"GATEWAY" not in (here / "environ").read_bytes()
    assert limits["Max address space"].split()[:2] == [str(2**30)] * 2
    for name in ("Max core file size", "Max file size"):
        assert limits[name].split()[:2] == ["0", "0"]
    assert (here / "oom_score_adj").read_text().strip() == "1000"
    assert "NoNewPrivs:\t1" in (here / "status").read_text()


@ON_LINUX
def test_a_decoder_writes_no_files(make: Make, tmp_path: Path) -> None:
    assert error_facts(failure(make(), f"write {tmp_path}/file".encode())) == ("UNAVAILABLE", None, True)
    assert (tmp_path / "file").read_bytes() == b""


STARTS = """
import sys
from datastore.photos.decoder import DecoderLimits, DecoderProcess
from datastore.photos.image_types import PictureType
decoder = DecoderProcess(DecoderLimits(), ({command!r}))
decoder.examine("original", bytes.fromhex({picture!r}), PictureType.JPEG)
print(decoder.pid, flush=True)
{then}
"""


@ON_LINUX
@pytest.mark.parametrize("then", ["sys.stdin.read()", 'decoder.examine("original", b"spin", PictureType.JPEG)'])
def test_a_decoder_ends_with_a_gateway_that_is_killed(then: str) -> None:
    program = STARTS.format(command=FAULTY, picture=jpeg(9, 9).hex(), then=then)
    gateway = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with gateway:
        assert gateway.stdout is not None
        pid = int(gateway.stdout.readline())
        watched = os.pidfd_open(pid)
        gateway.kill()
    try:
        # It is readable when the process has ended, whichever process is its parent.
        assert select.select([watched], [], [], 30)[0]
    finally:
        os.close(watched)


async def test_closing_ends_decoders_and_fails_their_callers() -> None:
    decoders: list[DecoderProcess] = []

    def new_decoder() -> DecoderProcess:
        decoders.append(DecoderProcess(DecoderLimits(), FAULTY))
        return decoders[-1]

    places = DecoderPool(new_decoder)
    await places.examine("original", jpeg(), JPEG, user="me")
    waiting = [asyncio.create_task(places.examine("original", b"sleep", JPEG, user=name)) for name in "abcd"]
    async with asyncio.timeout(50):
        while sum(decoder.pid is not None for decoder in decoders) < 2:  # noqa: ASYNC110 - threads tell no event
            await asyncio.sleep(0.005)
    pids = [decoder.pid for decoder in decoders]
    await places.aclose()
    answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(answer) for answer in answers] == [Unavailable] * 4
    assert all(is_gone(pid) for pid in pids)


async def test_a_gateway_starts_decoders_when_they_are_needed_and_ends_them(served: Served) -> None:
    await put_library_items(served, photo_user(uploadCount=0, uploadLimit=10))
    decoders = served.pictures._decoders
    assert [decoder.pid for decoder in decoders] == [None, None]
    answer = await complete_photo(served, await upload_original(served, jpeg(600, 400)))
    pids = [decoder.pid for decoder in decoders if decoder.pid is not None]
    assert (answer.errors, len(pids)) == (None, 1)
    await served.pictures.aclose()

    assert is_gone(pids[0])
    late = await complete_photo(served, await upload_original(served, jpeg()))
    assert late.codes == ["UNAVAILABLE"]


@pytest.mark.proof
def test_the_gateway_itself_has_no_decoder() -> None:
    """No module for uploads imports Pillow in the gateway's process."""
    modules = "datastore.photos.uploads, server.media.files, resolvers.shared.context"
    program = f"import sys, {modules}; print('PIL' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True) == "False\n"


@hypothesis_settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(content: bytes) -> None:
    try:
        message = read_message(io.BytesIO(content), 100)
    except BadMessage:
        return
    assert message is None or sum(map(len, message[1])) <= 100


def test_a_message_is_decoded_as_it_was_encoded() -> None:
    file = io.BytesIO()
    write_message(file, {"a": 1}, b"x", b"", b"yz")
    file.seek(0)

    assert read_message(file, 3) == ({"a": 1}, [b"x", b"", b"yz"])
    assert read_message(file, 3) is None
    file.seek(0)
    with pytest.raises(BadMessage):
        read_message(file, 2)
    # As a length, these bytes are 4 GB: the content is not read.
    with pytest.raises(BadMessage):
        read_message(io.BytesIO(b"\xff" * 100), 3)
