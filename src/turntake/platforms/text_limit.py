"""How long a text can be on a platform, and whether one fills that length, so that it was probably cut there. Pure."""

from typing import NamedTuple

from turntake.platforms.replies import Unit

A_WORD = 50
"""In units. A program that cuts between two words leaves no more than a long word of the length unused."""


class TextLimit(NamedTuple):
    """The longest text that a person can send in one message, in `unit`; 0 if there is no such limit."""

    longest: int = 0
    unit: Unit = "characters"

    def is_filled_by(self, text: str) -> bool:
        """Whether the text is as long as it could be. A longer one shows that its sender has another limit."""
        if len(text) * 4 < self.longest - A_WORD:  # no character has more than four bytes
            return False
        return bool(self.longest) and self.longest - A_WORD <= size(text, self.unit) <= self.longest


NO_LIMIT = TextLimit()


def size(text: str, unit: Unit) -> int:
    """How long a text is for a platform that counts in this unit."""
    if unit == "bytes":
        return len(text.encode())
    return len(text) if unit == "characters" else len(text.encode("utf-16-le")) // 2
