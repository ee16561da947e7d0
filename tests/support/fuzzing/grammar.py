"""Requests from a grammar: allowed by RFC 9112, or nearly so."""

import base64

from tests.support.fuzzing.choices import Choices

KEY = base64.b64encode(b"0123456789abcdef")
APPS = (b"/echo", b"/early", b"/late", b"/pieces", b"/events", b"/large", b"/waits")
METHODS = (b"GET", b"POST", b"HEAD", b"OPTIONS")
OTHER_METHODS = (
    *(b"PUT", b"DELETE", b"PATCH", b"TRACE", b"CONNECT", b"PROPFIND", b"LOCK", b"SEARCH", b"QUERY", b"PRI", b"SOURCE"),
    *(b"FOO", b"get", b"GETT", b"G", b"M-SEARCH", b"\x00", b"GET\t", b""),
)
TARGETS = (
    *(b"*", b"http://here/echo", b"http://elsewhere/echo", b"http://here:80/echo?a", b"https://[::1]:1/", b"here:80"),
    *(b"/?query=%7Ba%7D", b"/%2e%2e/%00%ff", b"//echo", b"/echo?" + b"a=b&" * 30, b"/echo#part", b"/\xc3\xa9", b""),
    *(b"/a b", b"http://", b"http:///", b"http://user@here/", b"ws://here/echo", b"?", b"echo", b"/" + b"x" * 5_000),
    *(b"/echo\x7f", b"/{}|\\^`", b"/%", b"/%zz", b"/%C3%A9", b"http://here:99999/", b"http://[/", b"/;a=1"),
)
VERSIONS = (b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.2", b"HTTP/1.10", b"http/1.1", b"HTTP/11", b"HTP/1.1", b"")
HOSTS: tuple[tuple[bytes, ...], ...] = (
    *((), (b"here", b"here"), (b"here", b"elsewhere"), (b"",), (b"here:80",), (b"elsewhere",), (b"a b",)),
    *((b"here, elsewhere",), (b"user@here",), (b"[::1]",), (b"\xff",)),
)
CODINGS: tuple[tuple[bytes, ...], ...] = (
    *((b"gzip, chunked",), (b"chunked", b"chunked"), (b"chunked, chunked",), (b"identity",), (b"xchunked",)),
    *(
        (b"Chunked",),
        (b"chunked ",),
        (b"chunked;q=1",),
        (b"",),
        (b"chunked", b"identity"),
        (b"gzip",),
        (b"\x0bchunked",),
    ),
)
CONNECTIONS = (
    *(b"close", b"keep-alive", b"Keep-Alive, close", b"Upgrade", b"upgrade, keep-alive", b"close, Upgrade"),
    *(b"TE, Trailer", b"content-length", b"transfer-encoding, host", b"close,", b", ,close", b"x" * 300),
)
UPGRADES = (b"websocket", b"h2c", b"WebSocket", b"websocket, h2c", b"TLS/1.0", b"", b"HTTP/2.0", b"websocket/13")
FIELDS = (
    *(
        b"Accept: text/event-stream",
        b"Accept: " + b"," * 300,
        b"Content-Type: application/json",
        b"Expect: 100-continue",
    ),
    *(
        b"Expect: 200-ok",
        b"Authorization: Bearer x",
        b"X-Forwarded-For: 1.2.3.4",
        b"Keep-Alive: timeout=5",
        b"TE: trailers",
    ),
    *(
        b"Trailer: X-A",
        b"X-A:",
        b"X-A: \t ",
        b"X-A:  a  b  ",
        b"X-A: \xc3\xa9",
        b"Cookie: a=b; c=d",
        b"HTTP2-Settings: AA",
    ),
    *(b"Content-Encoding: gzip", b"Last-Event-ID: end", b"Proxy-Connection: close", b"Content-Length: 0"),
)
WRONG_FIELDS = (
    *(b"X A: b", b"X-A : b", b" X-A: b", b"X-A", b": b", b"X-A: b\x00c", b"X-A: b\rc", b"X-A: b\nX-B: c", b"\xff: b"),
    *(
        b"X-A: b\r\n folded",
        b"X-A: \x7f",
        b"X-A: \x01",
        b"X-A: \x0b",
        b"X(A): b",
        b"X-A:\r\n\tb",
        b"Content-Length: 5, 5",
    ),
)
# Separators and tokens that mutations insert anywhere.
TOKENS = (
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b"\x00", b" ", b"\t", b":", b";", b",", b"0\r\n\r\n", b"0\r\n"),
    *(b"a: b\r\n", b"5\r\nhello\r\n", b"ffffffff\r\n", b"fffffffffffffffff\r\n", b"-1\r\n", b"0x5\r\n", b"5;a=b\r\n"),
    *(b"CONNECT / HTTP/1.1\r\n", b"GET /echo HTTP/1.1\r\nHost: here\r\n\r\n", b" HTTP/1.1", b"HTTP/1.1 200 OK\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Content-Length: 3\r\n", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"),
    *(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x81\x85aaaa", b"\xff"),
)
TRAILERS = (
    *(b"X-A: b", b"X-Forwarded-For: 1.2.3.4", b"Authorization: Bearer admin", b"Content-Length: 3", b"Host: elsewhere"),
    *(b"Transfer-Encoding: chunked", b"Accept: text/event-stream", b"Connection: close", b"Upgrade: websocket", b"X-A"),
    *(b"X A: b", b"X-A: " + b"x" * 2_000),
)
EXTENSIONS = (b";a", b";a=b", b';a="b c"', b" ;a", b";" + b"x" * 500, b";a=\x00", b";\r", b" ", b";a;b;c=d", b"\t")


def random_request(choices: Choices) -> bytes:
    """Return one request, mostly a well-formed one."""
    match choices.below(8):
        case 6:
            return handshake(choices)
        case 7:
            return with_upgrade(choices)
        case _:
            return plain_request(choices)


def request_stream(choices: Choices) -> bytes:
    """Return the bytes of a connection: some requests, of which some are malformed."""
    sent = b"".join(random_request(choices) for _ in range(1 + choices.below(4)))
    if choices.rng(1):
        sent *= 2 + choices.below(20)
    while choices.rng(6):
        sent = mutated(choices, sent)
    return sent


def mutated(choices: Choices, data: bytes) -> bytes:
    """Change the bytes in one place: remove, repeat or insert some, flip a bit, or cut the end off."""
    at = choices.below(len(data) + 1)
    match choices.below(6):
        case 0:
            return data[:at] + choices.pick(TOKENS) + data[at:]
        case 1:
            return data[:at] + data[at + 1 + choices.below(8) :]
        case 2:
            end = at + 1 + choices.below(64)
            return data[:end] + data[at:end] * (1 + choices.below(3)) + data[end:]
        case 3:
            turned = bytes([data[at] ^ (1 << choices.below(8))]) if at < len(data) else b""
            return data[:at] + turned + data[at + 1 :]
        case 4:
            return data[:at]
        case _:
            return data[:at] + choices.octets(8) + data[at:]


def plain_request(choices: Choices) -> bytes:
    """Return a request without an upgrade."""
    method = choices.usually(choices.pick(METHODS), OTHER_METHODS, 3)
    target = choices.usually(choices.pick(APPS), TARGETS, 3)
    version = choices.usually(b"HTTP/1.1", VERSIONS, 1)
    fields = [b"Host: " + host for host in choices.usually((b"here",), HOSTS, 1)]
    fields += choices.some(lambda: choices.pick(FIELDS), 3)
    if choices.rng(1):
        fields.append(choices.pick(WRONG_FIELDS))
    if choices.rng(3):
        fields.append(b"Connection: " + choices.pick(CONNECTIONS))
    if choices.rng(1, 64):
        fields += [b"X-%d: y" % number for number in range(choices.pick((90, 99, 110, 400)))]
    framing, body = _framed(choices, has_body=method not in (b"GET", b"HEAD") or choices.rng(2))
    return head(b" ".join((method, target, version)), fields + framing) + body


def _framed(choices: Choices, *, has_body: bool) -> tuple[list[bytes], bytes]:
    """Return the framing headers of a body, and the body."""
    if not has_body:
        return [], b""
    body = _body(choices)
    match choices.below(6):
        case 0 | 1:
            return [b"Content-Length: %d" % len(body)], body
        case 2 | 3 | 4:
            codings = choices.usually((b"chunked",), CODINGS, 1)
            return [b"Transfer-Encoding: " + coding for coding in codings], in_random_chunks(choices, body)
        case _:
            return _wrongly_framed(choices, body)


def _wrongly_framed(choices: Choices, body: bytes) -> tuple[list[bytes], bytes]:
    size = len(body)
    length = b"Content-Length: %d" % size
    wrong = (
        [b"Content-Length: %d" % (size + 3)],
        [b"Content-Length: %d" % max(0, size - 3)],
        [length, length],
        [length, b"Content-Length: %d" % (size + 1)],
        [b"Content-Length: +%d" % size],
        [b"Content-Length: -1"],
        [b"Content-Length: 0%d" % size],
        [b"Content-Length: 99999999999999999999"],
        [b"Content-Length:"],
        [b"Content-Length: %d " % size],
    )
    if choices.rng(4):
        return [length, b"Transfer-Encoding: chunked"], in_random_chunks(choices, body)
    return choices.pick(wrong), body


def _body(choices: Choices) -> bytes:
    return choices.pick((b"hello", b"", b'{"query":"{a}"}', b"x" * 300, b"0\r\n\r\n", b"x" * 70_000, b"\x00\xff\r\n"))


def in_random_chunks(choices: Choices, body: bytes) -> bytes:
    """Return the body in chunks, with extensions and trailers."""
    size = choices.pick((1_000, 3, 100_000))
    parts = []
    for at in range(0, len(body), max(size, len(body) // 50)):
        chunk = body[at : at + max(size, len(body) // 50)]
        extension = choices.pick(EXTENSIONS) if choices.rng(1) else b""
        parts.append(choices.usually(b"%x", (b"%X", b"000%x", b"0x%x", b"%x "), 1) % len(chunk) + extension + b"\r\n")
        parts += [
            chunk,
            choices.usually(b"\r\n", (b"\n", b"", b"\r\n\r\n", b"x\r\n"), 1) if choices.rng(1) else b"\r\n",
        ]
    parts.append(b"0" + (choices.pick(EXTENSIONS) if choices.rng(1) else b"") + b"\r\n")
    if choices.rng(5):
        repeated = choices.pick((1, 1, 1, 150, 3_000))
        parts += [trailer + b"\r\n" for trailer in choices.some(lambda: choices.pick(TRAILERS), 3)] * repeated
    parts.append(b"\r\n" if not choices.rng(1, 32) else b"")
    return b"".join(parts)


def handshake(choices: Choices) -> bytes:
    """Return the opening handshake of a WebSocket, possibly damaged, and some frames."""
    fields = [b"Host: here", b"Upgrade: " + choices.usually(b"websocket", UPGRADES, 1)]
    fields.append(b"Connection: " + choices.usually(b"Upgrade", CONNECTIONS, 1))
    fields.append(b"Sec-WebSocket-Key: " + choices.usually(KEY, (b"", b"short", KEY + b"=", b"\xff" * 16), 1))
    fields.append(b"Sec-WebSocket-Version: " + choices.usually(b"13", (b"8", b"", b"13, 8", b"99"), 1))
    fields.append(
        b"Sec-WebSocket-Protocol: " + choices.usually(b"graphql-transport-ws", (b"", b"x, y", b"graphql-ws"), 1)
    )
    fields += choices.some(lambda: choices.pick(FIELDS), 2)
    framing, body = _framed(choices, has_body=choices.rng(1))
    line = choices.usually(b"GET", (b"POST", b"HEAD", b"CONNECT", b"PUT"), 1) + b" /graphql "
    line += choices.usually(b"HTTP/1.1", VERSIONS, 1)
    return head(line, fields + framing) + body + choices.pick((b"", b"\x89\x80aaaa", b"\x88\x80aaaa", b"\xff\xff"))


def with_upgrade(choices: Choices) -> bytes:
    """Return a request for an upgrade to an unknown protocol, as clients of HTTP/2 send it."""
    framing, body = _framed(choices, has_body=choices.rng(8))
    fields = [
        b"Host: here",
        b"Connection: Upgrade, HTTP2-Settings",
        b"Upgrade: " + choices.usually(b"h2c", UPGRADES, 1),
    ]
    return head(choices.pick(METHODS) + b" " + choices.pick(APPS) + b" HTTP/1.1", fields + framing) + body


def head(line: bytes, fields: list[bytes]) -> bytes:
    """Return the head of a request."""
    return b"\r\n".join([line, *fields, b"", b""])
