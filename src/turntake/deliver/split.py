"""A reply in pieces that a platform takes: cut where a reader would pause, and never inside a character.

A character is what people see as one: a letter with its accents, a family of emoji, a flag.
"""

import re
import unicodedata
from collections.abc import Iterator

from turntake.platforms.replies import Unit
from turntake.platforms.text_limit import size

# Where to cut, best first: after a paragraph, a line, a sentence, a word.
PAUSES = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?…])\s|(?<=[\u3002\uff01\uff1f])"),
    re.compile(r"\s"),
)
JOINER = "\u200d"  # joins emoji into one, such as a family


def split(text: str, longest: int, unit: Unit = "characters") -> tuple[str, ...]:
    """Pieces of at most `longest` units that say the same in the same order; the space around a cut is left out."""
    if size(text, unit) <= longest:
        return (text,)
    return tuple(_pieces(text, longest, unit))


def _pieces(text: str, longest: int, unit: Unit) -> Iterator[str]:
    rest = text.strip()
    while rest:
        fitting = len(_fitting(rest, longest, unit))
        cut = fitting if fitting == len(rest) else _cut(rest, fitting)
        if piece := rest[:cut].rstrip():
            yield piece
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
        pauses = pause.finditer(text, most // 2, most + 1)
        cuts = [match.end() for match in pauses if match.end() > 0 and match.start() <= most]
        if cuts:
            return min(cuts[-1], most)
    return next((index for index in range(most, 0, -1) if _is_between(text, index)), most)


def _is_between(text: str, index: int) -> bool:
    """Whether a new character, as people see it, begins at `index`."""
    before, after = text[index - 1], text[index]
    if JOINER in (before, after) or unicodedata.category(after).startswith("M"):
        return False
    if "\U0001f3fb" <= after <= "\U0001f3ff" or (before, after) == ("\r", "\n"):
        return False
    return not (_is_flag(before) and _is_flag(after) and _flags_before(text, index) % 2)


def _is_flag(character: str) -> bool:
    """Half of a flag, which is two letters of this kind."""
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flags_before(text: str, index: int) -> int:
    start = index
    while start and _is_flag(text[start - 1]):
        start -= 1
    return index - start
