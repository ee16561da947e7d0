"""Characters that text and identifiers must not contain: invisible ones, and piles of marks.

The tables are Unicode 17.0's, which the standard library lacks: the property Default_Ignorable_Code_Point of
https://www.unicode.org/Public/17.0.0/ucd/DerivedCoreProperties.txt, and the characters with Emoji and without
Emoji_Presentation of https://www.unicode.org/Public/17.0.0/ucd/emoji/emoji-data.txt, as Node.js lists them with
`/\\p{Default_Ignorable_Code_Point}/u` and `/[\\p{Emoji}--\\p{Emoji_Presentation}]/v`.
"""

import re
from collections.abc import Iterator
from unicodedata import category, normalize

# The limit of the Stream-Safe Text Format, https://www.unicode.org/reports/tr15/#Stream_Safe_Text_Format: the time to
# order a run of marks grows with the square of its length.
MAX_MARKS = 30

# In hexadecimal. Both tables are in the order of the code points, the reserved ones included.
_IGNORABLE = """ad 34f 61c 115f-1160 17b4-17b5 180b-180f 200b-200f 202a-202e 2060-206f 3164 fe00-fe0f feff ffa0
fff0-fff8 1bca0-1bca3 1d173-1d17a e0000-e0fff"""
# Without `#`, `*` and the digits. U+FE0F makes these characters colored emoji, and is invisible after others.
_TEXT_EMOJI = """a9 ae 203c 2049 2122 2139 2194-2199 21a9-21aa 2328 23cf 23ed-23ef 23f1-23f2 23f8-23fa 24c2 25aa-25ab
25b6 25c0 25fb-25fc 2600-2604 260e 2611 2618 261d 2620 2622-2623 2626 262a 262e-262f 2638-263a 2640 2642 265f-2660 2663
2665-2666 2668 267b 267e 2692 2694-2697 2699 269b-269c 26a0 26a7 26b0-26b1 26c8 26cf 26d1 26d3 26e9 26f0-26f1 26f4
26f7-26f9 2702 2708-2709 270c-270d 270f 2712 2714 2716 271d 2721 2733-2734 2744 2747 2763-2764 27a1 2934-2935 2b05-2b07
3030 303d 3297 3299 1f170-1f171 1f17e-1f17f 1f202 1f237 1f321 1f324-1f32c 1f336 1f37d 1f396-1f397 1f399-1f39b
1f39e-1f39f 1f3cb-1f3ce 1f3d4-1f3df 1f3f3 1f3f5 1f3f7 1f43f 1f441 1f4fd 1f549-1f54a 1f56f-1f570 1f573-1f579 1f587
1f58a-1f58d 1f590 1f5a5 1f5a8 1f5b1-1f5b2 1f5bc 1f5c2-1f5c4 1f5d1-1f5d3 1f5dc-1f5de 1f5e1 1f5e3 1f5e8 1f5ef 1f5f3 1f5fa
1f6cb 1f6cd-1f6cf 1f6e0-1f6e5 1f6e9 1f6f0 1f6f3"""
# The Unicode Standard, 23.7: for internal use, never for interchange.
_NONCHARACTERS = "\ufdd0-\ufdef" + "".join(
    f"{chr(plane + 0xFFFE)}-{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)
)


def _class(table: str) -> str:
    """Return the table as the inside of a character class."""
    return "".join("-".join(chr(int(end, 16)) for end in entry.split("-")) for entry in table.split())


def _members(table: str) -> Iterator[str]:
    """Yield the characters of the table."""
    for entry in table.split():
        first, _, last = entry.partition("-")
        yield from map(chr, range(int(first, 16), int(last or first, 16) + 1))


_IGNORABLE_CLASS = _class(_IGNORABLE)
_CONTROLS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_BIDIRECTIONAL = "\u202a-\u202e\u2066-\u2069"
_DECEIVING = f"{_CONTROLS}{_BIDIRECTIONAL}\ud800-\udfff\U000e0000-\U000e007f{_NONCHARACTERS}"

NOT_IN_PROSE = re.compile(f"[{_DECEIVING}]")
# ZWNJ, ZWJ, and U+FE0F in an emoji or a keycap are the only invisible characters that are allowed. U+FFF9 to U+FFFB and
# the controls of Egyptian hieroglyphs are format characters (category Cf), too.
NOT_IN_A_LINE = re.compile(
    f"[{_DECEIVING}\t\n\r\u2028\u2029\ufff9-\ufffb\U00013430-\U0001343f{_IGNORABLE_CLASS}]"
    f"(?<![\u200c\u200d])(?<![{_class(_TEXT_EMOJI)}]\ufe0f)(?<![#*0-9]\ufe0f(?=\u20e3))"
)
# U+2800, the blank Braille pattern, is invisible but no ignorable code point.
BLANK = re.compile(f"[{_IGNORABLE_CLASS}\u2800]")
# Unicode's categories of controls, formats, surrogates, line and paragraph separators.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_IGNORABLES = frozenset(_members(_IGNORABLE))
_NEVER_IN_AN_ID = re.compile(f"[{_IGNORABLE_CLASS}\u2800{_NONCHARACTERS}]")


def is_ignorable(character: str) -> bool:
    """Return whether the character has the property Default_Ignorable_Code_Point: it is invisible by itself."""
    return character in _IGNORABLES


def has_forbidden_characters(text: str) -> bool:
    """Return whether the text has a character that is not allowed in identifiers, or a pile of marks."""
    if text.isascii():
        return not text.isprintable()
    if not _HIDDEN.isdisjoint(map(category, text)) or _NEVER_IN_AN_ID.search(text):
        return True
    return has_mark_pile(text)


def has_mark_pile(text: str) -> bool:
    """Return whether more than `MAX_MARKS` marks (Mn, Mc, Me) and ignorable characters follow each other."""
    if len(text) <= MAX_MARKS:
        return False
    marks = 0
    for character in text:
        marks = marks + 1 if _is_piled(character) else 0
        if marks > MAX_MARKS:
            return True
    return False


def cleaned_line(text: str) -> str:
    """Return a text from a file as a line of valid input: in NFC, with single spaces, without refused characters.

    Marks beyond `MAX_MARKS` in a row are left out. The text must be short: the time to order marks is quadratic.
    """
    kept, marks = [], 0
    for character in normalize("NFC", text):
        marks = marks + 1 if _is_piled(character) else 0
        if marks <= MAX_MARKS:
            kept.append(character)
    plain = NOT_IN_A_LINE.sub(" ", "".join(kept))
    return " ".join("".join(sign if sign.isprintable() else " " for sign in plain).split())


def _is_piled(character: str) -> bool:
    return not character.isascii() and (category(character)[0] == "M" or character in _IGNORABLES)
