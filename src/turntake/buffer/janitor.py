"""Forgets what ended long ago, a little at a time. Every worker runs one; several do no harm."""

import logging
from typing import Annotated

import msgspec

from turntake.buffer.store import Store
from turntake.clock import DAY_MS
from turntake.rules.retention import Retention, cutoffs

log = logging.getLogger("turntake")

# Often enough that what is forgotten at once stays little.
PAUSE_MS = 60_000
# While there is more to forget: long enough for writers to get in between.
BUSY_PAUSE_MS = 100


# About a week, and a day to be sure: nobody known sends a message again after that.
LONGEST_REDELIVERY_MS = 8 * DAY_MS


class HistoryOptions(msgspec.Struct, frozen=True):
    """`[history]`: what is kept of turns that have ended."""

    keep_ms: Annotated[
        int, msgspec.Meta(ge=0, description="How long settled turns are kept, with what was said and answered.")
    ] = 8 * DAY_MS


class DedupeOptions(msgspec.Struct, frozen=True):
    """`[dedupe]`: how long a message that comes again is known."""

    keep_ms: Annotated[
        int,
        msgspec.Meta(
            ge=0, description="How long ids of settled messages are known, so that one sent again is no new one."
        ),
    ] = LONGEST_REDELIVERY_MS


class LetterOptions(msgspec.Struct, frozen=True):
    """`[letters]`: what is kept of messages that nobody answered."""

    keep_ms: Annotated[
        int, msgspec.Meta(ge=0, description="How long dead letters are kept; 0 keeps them until somebody ends them.")
    ] = 0


async def keep_forgetting(store: Store, retention: Retention) -> None:
    """Drops what is older than it is to be kept, until it is cancelled."""
    while True:
        try:
            forgotten = await _forget(store, retention)
        except Exception as error:
            log.error("Nothing could be forgotten", extra={"action": "forget", "error": type(error).__name__})
            forgotten = 0
        await store.clock.sleep(BUSY_PAUSE_MS if forgotten else PAUSE_MS)


async def _forget(store: Store, retention: Retention) -> int:
    clock = store.clock
    before = cutoffs(retention, clock.now(), clock.ahead_ms, clock.doubtful_ms)
    letters = 0 if before.letters is None else await store.letters.discard_older(before.letters)
    if letters:
        log.warning("Dead letters were discarded for their age", extra={"action": "forget", "letters": letters})
    return letters + await store.history.forget(before.turns, before.ids)
