"""Padding, so that what is encrypted does not tell how long it is: all up to some length look alike."""

STEP = 32
_END = b"\x80"


def padded(content: bytes) -> bytes:
    """The content with a mark at its end and zeros up to the next multiple of `STEP` bytes (ISO/IEC 7816-4)."""
    marked = content + _END
    return marked + bytes(-len(marked) % STEP)


def unpadded(raw: bytes) -> bytes:
    """What was padded. Raises `ValueError` for what `padded` does not make."""
    content = raw.rstrip(b"\0")[:-1]
    if padded(content) != raw:
        raise ValueError("This is not padded.")
    return content
