"""Uploads of media."""

import asyncio

from tests.support.served import Served


async def begin_upload(
    served: Served, content_type: str, length: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection and send the head of an upload."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.gateway.settings.port)
    lines = ["POST /media HTTP/1.1", "Host: x", f"Content-Type: {content_type}", f"Content-Length: {length}", "", ""]
    writer.write("\r\n".join(lines).encode())
    return reader, writer
