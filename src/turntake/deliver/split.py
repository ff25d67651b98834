"""A reply in pieces that a platform takes: cut where a reader would pause, and never inside a character."""

import re
import unicodedata
from collections.abc import Iterator

from turntake.platforms.replies import Unit

# Where to cut, best first: after a paragraph, a line, a sentence, a word.
PAUSES = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?…])\s|(?<=[\u3002\uff01\uff1f])"),
    re.compile(r"\s"),
)
JOINER = "\u200d"


def split(text: str, longest: int, unit: Unit = "characters") -> tuple[str, ...]:
    """Pieces of at most `longest` units that say the same in the same order; the space around a cut is left out."""
    if size(text, unit) <= longest:
        return (text,)
    return tuple(_pieces(text, longest, unit))


def size(text: str, unit: Unit) -> int:
    if unit == "bytes":
        return len(text.encode())
    return len(text) if unit == "characters" else len(text.encode("utf-16-le")) // 2


def _pieces(text: str, longest: int, unit: Unit) -> Iterator[str]:
    rest = text.strip()
    while rest:
        piece = _fitting(rest, longest, unit)
        cut = len(piece) if len(piece) == len(rest) else _cut(rest, len(piece))
        said = rest[:cut].rstrip()
        if said:
            yield said
        rest = rest[cut:].lstrip()


def _fitting(text: str, longest: int, unit: Unit) -> str:
    """As much of the beginning as fits."""
    piece = text[:longest]
    while size(piece, unit) > longest:
        # A character has at most four bytes or two units: what is too much tells how many must go at the least.
        piece = piece[: len(piece) - max(1, (size(piece, unit) - longest) // 4)]
    return piece


def _cut(text: str, most: int) -> int:
    """The best place to cut at or before `most`: a pause in the second half, else between two characters."""
    for pause in PAUSES:
        found = pause.finditer(text, most // 2, most + 1)
        cuts = [each.end() for each in found if each.end() > 0 and each.start() <= most]
        if cuts:
            return min(cuts[-1], most)
    return next((place for place in range(most, 0, -1) if _is_between(text, place)), most)


def _is_between(text: str, place: int) -> bool:
    """Whether a new character, as people see it, begins at `place`."""
    before, after = text[place - 1], text[place]
    if JOINER in (before, after) or unicodedata.category(after).startswith("M"):
        return False
    if "\U0001f3fb" <= after <= "\U0001f3ff" or (before, after) == ("\r", "\n"):
        return False
    return not (_is_flag(before) and _is_flag(after) and _flags_before(text, place) % 2)


def _is_flag(character: str) -> bool:
    """Half of a flag, which is two letters of this kind."""
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flags_before(text: str, place: int) -> int:
    start = place
    while start and _is_flag(text[start - 1]):
        start -= 1
    return place - start
