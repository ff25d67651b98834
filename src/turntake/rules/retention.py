"""How long what is over is kept: turns with their words, the ids of messages, and dead letters."""

from typing import NamedTuple

import msgspec

HOUR_MS = 3_600_000


class Retention(msgspec.Struct, frozen=True):
    """`turns_ms` is for what people said and what was answered, `ids_ms` for knowing a message that comes again.

    Ids are kept no shorter than turns, whatever is set. With `letters_ms` 0, dead letters are kept for ever.
    """

    turns_ms: int
    ids_ms: int
    letters_ms: int = 0


class Cutoffs(NamedTuple):
    """What closed before these instants is forgotten. Without `letters`, no dead letter is."""

    turns: int
    ids: int
    letters: int | None


def cutoffs(retention: Retention, now: int, ahead_ms: int, doubtful_ms: int) -> Cutoffs:
    """As of `now`, by a clock that is known to be ahead by `ahead_ms`, and may be so by `doubtful_ms`.

    A clock that was wrong for a moment must not make messages that come again look new, so ids and letters are judged
    by what the time is for certain. What people said is forgotten as soon as the clock says so.
    """
    certain = now - doubtful_ms
    letters = certain - retention.letters_ms if retention.letters_ms else None
    return Cutoffs(now - ahead_ms - retention.turns_ms, _rounded(certain - retention.ids_ms, retention.ids_ms), letters)


def _rounded(at: int, kept_ms: int) -> int:
    """Back to a full hour, or to a part of what is kept if that is short: a conversation that goes on for months is
    looked through once for each such step, and not every minute."""
    step = max(1, min(HOUR_MS, kept_ms // 24))
    return at - at % step
