"""Random bodies, forms, URLs, ids and headers, and the checks of their parsers."""

import json
import re
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from datastore.change_streams.replay.resume_token import ResumeToken, decode
from datastore.change_streams.replay.signed_resume_ids import LONGEST_RESUME, ResumeIds
from datastore.errors import BadUserInput, DomainError
from datastore.model.base64url import encode as encode_base64
from datastore.model.identity import Role
from datastore.objects import FILE_FIELD
from datastore.session.cursors import Cursors, binding
from server.documents.request import read_params
from server.http.body import Bodies, decode_content
from server.http.headers import EVENTS, GRAPHQL, JSON, Headers, _parse_accept, parse_accept
from server.http.responses import Refused
from server.media.multipart import LONGEST_TOKEN, TOKEN_FIELD, UploadForm
from server.operations.outcome import encode, format_error
from server.security.jwt import Tokens, TokenSettings
from tests.support.fuzzing import grammar, sockets
from tests.support.fuzzing.choices import Choices
from tests.support.fuzzing.clockwork import Clockwork
from tests.support.fuzzing.rig import InvariantBroken
from tests.support.toy_sockets import NOW

# The longest message that may repeat a part of the input.
LONGEST_MESSAGE = 1_200

# Requests to the whole application


def application_requests(choices: Choices) -> bytes:
    """Return requests that the application knows, and mutations of them."""
    sent = b"".join(_request(choices) for _ in range(1 + choices.below(3)))
    while choices.rng(3):
        sent = grammar.mutated(choices, sent)
    return sent


def _request(choices: Choices) -> bytes:
    match choices.below(8):
        case 0 | 1 | 2:
            return _post(choices)
        case 3 | 4:
            fields = [b"Host: here", *_fields(choices)]
            return grammar.head(b"GET /graphql?" + query_string(choices) + b" HTTP/1.1", fields)
        case 5:
            return _upload_request(choices)
        case 6:
            return grammar.head(b" ".join((choices.pick(_METHODS), choices.pick(_PATHS), b"HTTP/1.1")), [b"Host: here"])
        case _:
            return grammar.random_request(choices)


_METHODS = (b"GET", b"HEAD", b"OPTIONS", b"POST", b"PUT")
_PATHS = (
    *(b"/", b"/healthz", b"/readyz", b"/metrics", b"/media", b"/media/x", b"/graphql", b"/graphql/", b"/nothing"),
    *(b"/graphiql/config.json", b"/media/" + b"x" * 500, b"/media/%00", b"/%F0%9F%98%80", b"/graphql?documentId="),
)
_FIELDS = (
    *(b"Accept: text/event-stream", b"Accept: text/html", b"Accept: image/png", b"Origin: https://page.example"),
    *(b"Origin: null", b"Origin: http://[", b"Access-Control-Request-Method: POST", b"Sec-Fetch-Site: cross-site"),
    *(b"Authorization: Bearer x", b"Authorization: Basic eDp4", b"Authorization: Bearer a.b.c", b"Authorization:"),
    *(b"Idempotency-Key: k", b"Idempotency-Key: \xff", b"X-Explain: 1", b"X-Explain: maybe", b"traceparent: 00-0-0-0"),
    *(b"traceparent: 00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", b"Content-Encoding: gzip", b"If-None-Match: *"),
    *(b"apollo-require-preflight: 1", b"X-Forwarded-For: 1.2.3.4", b"X-Forwarded-Proto: https", b"Range: bytes=0-"),
)


def _fields(choices: Choices) -> list[bytes]:
    fields = choices.some(lambda: choices.pick(_FIELDS), 3)
    if choices.rng(3):
        fields.append(b"Accept: " + accept(choices).encode("latin-1")[:2_000])
    if choices.rng(4):
        fields.append(
            b"Last-Event-ID: " + str(event_id(choices)).encode("utf-8", "replace").translate(_NO_BREAKS)[:3_000]
        )
    return fields


_NO_BREAKS = bytes(32 if byte < 32 or byte == 127 else byte for byte in range(256))


def _post(choices: Choices) -> bytes:
    content = operation_body(choices)
    types = (b"text/plain", b"application/json; charset=utf-16", b"application/json;charset=UTF-8", b"", b"\xff")
    fields = [b"Host: here", b"Content-Type: " + choices.usually(b"application/json", types, 1), *_fields(choices)]
    if choices.rng(3):
        return grammar.head(
            b"POST /graphql HTTP/1.1", [*fields, b"Transfer-Encoding: chunked"]
        ) + grammar.in_random_chunks(choices, content)
    return grammar.head(b"POST /graphql HTTP/1.1", [*fields, b"Content-Length: %d" % len(content)]) + content


def _upload_request(choices: Choices) -> bytes:
    media, pieces = upload_form(choices)
    content = b"".join(pieces)
    fields = [b"Host: here", b"Content-Type: " + media.encode("latin-1", "replace").translate(_NO_BREAKS)]
    return grammar.head(b"POST /media HTTP/1.1", [*fields, b"Content-Length: %d" % len(content)]) + content


# Uploads by form

BOUNDARIES = ("xyz", '"x y"', "", "x" * 70, "x" * 300, "\xff", "--", "x\r\n", "'()+_,-./:=?")
_DISPOSITIONS = (
    *(b"form-data; name=other", b"form-data", b"", b'form-data; name="token', b"form-data; name*=UTF-8''token"),
    *(b'attachment; name="file"', b'form-data; name="token"; name="file"', b"form-data; name=" + b"x" * 5_000),
    *(b'form-data; name="\xff"', b"form-data;" * 500, b'form-data; name="token"; filename="\\"\r', b"\x00"),
)
Upload = tuple[str, tuple[bytes, ...]]


def upload_form(choices: Choices) -> Upload:
    """Return a Content-Type, and a form in pieces."""
    boundary = choices.usually("xyz", BOUNDARIES, 2)
    media = choices.usually("multipart/form-data", ("multipart/mixed", "text/plain", "", "multipart/form-data;"), 1)
    line = b"--" + boundary.strip('"').encode("latin-1")
    form = _part(choices, line, TOKEN_FIELD, b"token") + _part(choices, line, FILE_FIELD, b"\x89PNG")
    form += b"".join(choices.some(lambda: _part(choices, line, "more", b"x"), 2) if choices.rng(2) else [])
    form += line + choices.usually(b"--\r\n", (b"--", b"\r\n", b"", b"--\r\nepilogue", b"-" * 3_000), 2)
    while choices.rng(5):
        form = grammar.mutated(choices, form)
    size = choices.pick((1 << 20, 1, 7, 100)) if len(form) < 10_000 else 4_000
    return f"{media}; boundary={boundary}", tuple(form[at : at + size] for at in range(0, len(form), size))


def _part(choices: Choices, line: bytes, name: str, content: bytes) -> bytes:
    disposition = choices.usually(b'form-data; name="%b"' % name.encode(), _DISPOSITIONS, 1)
    headers = [b"Content-Disposition: " + disposition]
    if name == FILE_FIELD or choices.rng(1):
        headers.append(b"Content-Type: " + choices.usually(b"image/png", (b"", b";", b"text/html", b"\xff" * 90), 1))
    if choices.rng(1):
        headers += [choices.pick((b"X-A: b", b"X-A", b":", b"X-A: " + b"x" * 5_000))] * choices.pick((1, 7, 100))
    content = choices.usually(content, (b"", b"\r\n--xy", b"x" * 5_000, b"\r\n" * 50, b"\xff\x00", line), 2)
    return b"\r\n".join([line, *headers, b"", content, b""])


def check_upload(example: Upload) -> Any:
    """Check that a form is parsed alike in whatever pieces it arrives, is buffered within bounds, and fails with a
    message.
    """
    media, pieces = example
    whole = _uploaded(media, (b"".join(pieces),))
    parted = _uploaded(media, pieces)
    # A refused form may be refused for another of its faults.
    if whole != parted and "whole" in (whole[0], parted[0]):
        raise InvariantBroken("pieces count", f"{whole} in one piece, {parted} in {len(pieces)}")
    return whole[0], len(whole[2]) > 0


def _uploaded(media: str, pieces: Sequence[bytes]) -> tuple[str, tuple[str, str] | None, bytes]:
    """Return the outcome of a form (complete or what is missing), the start of its file, and the file."""
    begun: list[tuple[str, str]] = []
    written = bytearray()

    try:
        form = UploadForm(media)
        for piece in pieces:
            form.feed(piece)
            if form.opening is not None:
                if len(form.opening.token) > LONGEST_TOKEN:
                    raise InvariantBroken("unbounded memory", f"a token of {len(form.opening.token):,} bytes")
                begun.append((form.opening.token, form.opening.content_type))
                form.write_to(written.extend)
        form.end()
        end = "whole"
    except BadUserInput as problem:
        end = _told(problem)
    if len(begun) > 1 or (end == "whole" and not begun):
        raise InvariantBroken("file begun", f"{len(begun)} times")
    # Depending on the pieces, a file before a fault may have been started or not; it is discarded in both cases.
    # The reported fault depends on where a piece ends.
    return (end, begun[0], bytes(written)) if end == "whole" else ("refused", None, b"")


# JSON bodies


def operation_body(choices: Choices) -> bytes:
    """Return the JSON of an operation, valid or invalid."""
    text = json.dumps(sockets.operation_json(choices), ensure_ascii=choices.rng(8)).encode("utf-8", "surrogatepass")
    while choices.rng(4):
        text = _changed(choices, text)
    return text


_JSON_TOKENS = (
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"null", b"NaN", b"1e999", b"-0", b"\\ud800", b"\\u0000", b"\xff"),
    *(b"\xef\xbb\xbf", b"\xc0\xaf", b" " * 500, b"9" * 5_000, b"[" * 3_000, b'{"a":' * 3_000, b'"query":"{me}",'),
    *(b'"variables":{"a":1},', b"\x00", b"/*x*/", b"\xed\xa0\x80", b"1" + b"0" * 400 + b"e-400", b"\xe2\x80\xa8"),
)


def _changed(choices: Choices, text: bytes) -> bytes:
    if choices.rng(8):
        at = choices.below(len(text) + 1)
        return text[:at] + choices.pick(_JSON_TOKENS) + text[at:]
    return grammar.mutated(choices, text)


def check_body(example: bytes) -> Any:
    """Check that a body is an operation or is refused with a message."""
    try:
        asked = read_params(decode_content(example, "The body"))
    except BadUserInput as problem:
        return _told(problem)
    return asked.requested_id is not None, asked.query is not None, asked.idempotency_key is not None


def query_string(choices: Choices) -> bytes:
    """Return the query string of an operation in a GET."""
    asked = sockets.operation_json(choices)
    pairs = [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in asked.items()]
    if choices.rng(2):
        pairs += [(choices.pick(("query", "x", "", "variables", "é")), "1")] * choices.pick((1, 2, 150))
    parts = [f"{quote(name)}={quote(value, errors='replace')}".encode() for name, value in pairs]
    text = choices.usually(b"&", (b";", b"&&", b"=", b""), 1).join(parts)
    while choices.rng(3):
        text = grammar.mutated(choices, text)
    return text.translate(None, bytes([*range(33), 127]))


def check_query_string(example: bytes) -> Any:
    """Check that the parameters of a GET are an operation or are refused with a message."""
    try:
        read_params(Bodies().parameters(Headers([]), example))
    except Refused as refused:
        return _told(refused.error)
    except BadUserInput as problem:
        return _told(problem)
    return True


# Ids of events


def event_id(choices: Choices) -> Any:
    """Return an event id that a client may send."""
    if choices.rng(4):
        return choices.pick(sockets.PLACES)
    known = choices.pick(("", "~", "~a,b", "~a%3Ab:1.2-3_4~5", "~\n", "~" + "x" * 1_990, "~é", "~ "))
    if choices.rng(4):  # unsigned, as in earlier releases
        text = f"{choices.pick(('a1', 'z' * 33, 'A'))}.{choices.pick(('0', 'b' * 17))}.{choices.pick(('1z', '', 'é'))}"
    else:
        sizes = (0, 1, 3, 15, 26, 40, 300, 3_000)
        content = bytes(choices.below(256) for _ in range(min(choices.pick(sizes), 300)))
        text = choices.pick(
            (_IDS.sealer(b"x")(_PLACE, ""), encode_base64(content), encode_base64(_PLACE.encode() + content))
        )
    text += known
    while choices.rng(3):
        text = grammar.mutated(choices, text.encode()).decode("utf-8", "replace")
    return text


def check_event_id(example: Any) -> Any:
    """Check that an id is decoded or refused by name."""
    try:
        resume = _IDS.open(example, b"x")
    except BadUserInput as problem:
        if problem.extensions.get("field") != "resumeAfter":
            raise InvariantBroken("refusal without a field", str(problem.extensions)) from None
        return _told(problem)
    again = _IDS.sealer(b"x")(resume.token, resume.known)
    if len(example) > LONGEST_RESUME or _IDS.open(again, b"x") != resume or not again.isprintable():
        raise InvariantBroken("id read otherwise", f"{example!r} became {again!r}")
    return True


def position(choices: Choices) -> bytes:
    """Return the bytes of a position as they are in the signed part of an id."""
    content = _PLACE.encode()
    if choices.rng(4):
        content += bytes(choices.below(256) for _ in range(choices.below(40)))
    while choices.rng(2):
        content = grammar.mutated(choices, content)
    return content


def check_position(example: bytes) -> Any:
    """Check that the parser returns the position in the bytes, or refuses them."""
    try:
        place = decode(example)
    except ValueError:
        return False
    if decode(place.encode()) != place:
        raise InvariantBroken("position read otherwise", f"{example!r} became {place.positions!r}")
    return True


_IDS = ResumeIds(b"a secret of the test")
_PLACE = ResumeToken.at(
    b"stream", 1_790_000_000, {b"shard1": "0" * 17 + "4309", b"shard2": "", b"shard3": "@0a0b0c0d 1790000000"}
)


# Accept


def accept(choices: Choices) -> str:
    """Return the value of an Accept header."""
    medias = (JSON, GRAPHQL, EVENTS, "*/*", "application/*", "text/html", "", "/", "a/b", "\xff", "*", EVENTS.upper())
    weights = (
        "",
        ";q=0",
        ";q=1",
        ";q=0.5",
        ";q=nan",
        ";q=1e400",
        ";q=-1",
        ";q=",
        ';q="1"',
        ";charset=utf-8;q=0.1",
        ";;",
    )
    ranges = [choices.pick(medias) + choices.pick(weights) for _ in range(1 + choices.below(5))]
    text = choices.usually(", ", (",", ";", " ", ",,"), 1).join(ranges)
    if choices.rng(2):
        text = (text + choices.pick((",", ", ", ";", "=", "a/b;q=0.1,"))) * choices.pick((10, 1_000))
    return text[:32_000]


# The most function calls that parsing an Accept header may take, however long it is.
ACCEPT_CALLS = 6_000


def check_accept(example: str) -> Any:
    """Check that an Accept header is parsed with little work."""
    _parse_accept.cache_clear()
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        found = parse_accept(example)
    finally:
        sys.setprofile(None)
    if calls > ACCEPT_CALLS:
        raise InvariantBroken(
            "unbounded work", f"{calls:,} function calls for an Accept of {len(example):,} characters"
        )
    if found.single not in (None, JSON, GRAPHQL) or (found.prefers_events and not found.events):
        raise InvariantBroken("parse_accept otherwise", str(found))
    return found


# Cursors and tokens

_CURSORS = Cursors(b"a secret of the test")
_HERE = binding("BLIP-1 Query.sightings", {"area": "Downtown"})
_LOOP = Clockwork()


def _no_session() -> Any:
    raise AssertionError("An example reached the network.")


_TOKENS = Tokens(
    TokenSettings("a secret for fuzzing, long enough to sign with", (), None, None, None, "role"),
    open_session=_no_session,
    clock=lambda: NOW,
)
_GOOD_CURSOR = _CURSORS.seal({"PK": "A", "SK": "B"}, _HERE)
_GOOD_TOKEN = _TOKENS.issue("ada", Role.USER, "ada@a.example")


def secret(choices: Choices) -> str:
    """Return a changed cursor or token."""
    text = choices.pick((_GOOD_CURSOR, _GOOD_TOKEN, "a.b.c", "", "eyJhbGciOiJub25lIn0.e30.", "x" * 9_000)).encode()
    while choices.rng(12):
        text = grammar.mutated(choices, text)
    return text.decode("utf-8", choices.pick(("replace", "surrogateescape")))


def check_secret(example: str) -> Any:
    """Check that a value that was not signed here is refused and not repeated."""
    if example in (_GOOD_CURSOR, _GOOD_TOKEN):
        return True
    refused = []
    for read in (lambda: _CURSORS.open(example, _HERE), lambda: _identified(example)):
        try:
            found = read()
        except DomainError as problem:
            refused.append(_told(problem))
            if len(example) > 20 and example in str(problem):
                raise InvariantBroken("secret repeated", str(problem)) from None
        else:
            raise InvariantBroken("secret accepted", f"{example!r} was read as {found}")
    return tuple(refused)


def _identified(token: str) -> Any:
    task = _LOOP.create_task(_TOKENS.identify(token))
    _LOOP.run_ready()
    return task.result()


def _told(problem: DomainError) -> str:
    """Return the message of an error as clients receive it, without the parts that depend on the input."""
    text = encode({"errors": [format_error(problem)]}).decode()
    payload = json.loads(text)["errors"][0]
    if not 0 < len(payload["message"]) <= LONGEST_MESSAGE or "code" not in payload["extensions"]:
        raise InvariantBroken("bad message", text[:500])
    if re.search(r"Traceback|site-packages|\.py\b|<class|object at 0x", text):
        raise InvariantBroken("message leaks", text[:500])
    return re.sub(r"[0-9]+|\"[^\"]*\"", "_", payload["message"])[:60]
