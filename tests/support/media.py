"""Steps and data of the tests of media."""

import asyncio

from tests.support.served import Served


async def begun(served: Served, content_type: str, length: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which an upload was announced."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.settings.port)
    lines = ["POST /media HTTP/1.1", "Host: x", f"Content-Type: {content_type}", f"Content-Length: {length}", "", ""]
    writer.write("\r\n".join(lines).encode())
    return reader, writer
