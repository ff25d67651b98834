"""One small bug: where it is, what stood there, and what stands there now."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """Replaces the bytes `start` to `end` of a file. `path` is relative to the project."""

    path: str
    start: int
    end: int
    before: str
    after: str
    line: int

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {_short(self.before)} -> {_short(self.after) or '(nothing)'}"


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 60 else words[:57] + "..."
