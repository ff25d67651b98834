"""Forgets what ended long ago, a little at a time. Every worker runs one; several do no harm."""

import logging
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec.structs import replace

from turntake.buffer.store import Store
from turntake.clock import DAY_MS
from turntake.rules.key import ConversationKey
from turntake.rules.records import ClosedPoint
from turntake.rules.retention import Cutoffs, Retention, cutoffs
from turntake.rules.scopes import RuleBook, RuleScope

log = logging.getLogger("turntake")

# Often enough that what is forgotten at once stays little.
PAUSE_MS = 60_000
# While there is more to forget: long enough for writers to get in between.
BUSY_PAUSE_MS = 100
# Dead letters are discarded by hand, or when they are old: what they were is found a day later at most.
WALK_ANEW_MS = DAY_MS


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


CurrentRules = Callable[[], RuleBook]
"""The rules that count now."""


async def keep_forgetting(store: Store, retention: Retention, book: CurrentRules = RuleBook) -> None:
    """Drops what is older than it is to be kept, until it is cancelled."""
    janitor = Janitor(store, retention, book)
    while True:
        try:
            has_more = await janitor.forget()
        except Exception as error:
            log.error("Nothing could be forgotten", extra={"action": "forget", "error": type(error).__name__})
            has_more = False
        await store.clock.sleep(BUSY_PAUSE_MS if has_more else PAUSE_MS)


class Janitor:
    """Forgets a bounded part at a time.

    How turns that are kept for different times are found: what is older than the longest of these times goes, whatever
    it is. For each shorter time the turns are walked through in the order in which they closed, as they get that old,
    and those that are to be kept no longer go. How far each walk came is remembered, so that a turn is looked at once
    for each such time, and not every minute. When the rules about it change, all walks begin anew; and now and then, to
    find what was a dead letter when they came by.
    """

    def __init__(self, store: Store, retention: Retention, book: CurrentRules) -> None:
        self._store = store
        self._retention = retention
        self._book = book
        self._named: dict[RuleScope, int] = {}
        self._walked: dict[int, ClosedPoint] = {}
        self._began_at = 0

    async def forget(self) -> bool:
        """Whether there may be more to forget now."""
        book = self._book()
        keeps = self._keeps(book)
        longest = max(keeps)
        before = self._cutoffs(longest)
        letters = 0 if before.letters is None else await self._store.letters.discard_older(before.letters)
        if letters:
            log.warning("Dead letters were discarded for their age", extra={"action": "forget", "letters": letters})
        has_more = letters + await self._store.history.forget(before.turns, before.ids) > 0
        for keep_ms in sorted(keeps - {longest}):
            has_more |= await self._walk(book, keep_ms)
        return has_more

    def _keeps(self, book: RuleBook) -> set[int]:
        """All the times for which turns are kept. Begins the walks anew if they are others than before."""
        named, now = book.named("history_keep_ms"), self._store.clock.now()
        if named != self._named or now - self._began_at > WALK_ANEW_MS:
            self._named, self._began_at = named, now
            self._walked.clear()
        return {self._retention.turns_ms, *(keep_ms or self._retention.turns_ms for keep_ms in named.values())}

    async def _walk(self, book: RuleBook, keep_ms: int) -> bool:
        """Goes on with the turns that are this old by now; whether there are more of them."""

        def is_kept_no_longer(key: ConversationKey, agent: str) -> bool:
            return (book.rules_for(key, agent).history_keep_ms or self._retention.turns_ms) <= keep_ms

        before = self._cutoffs(keep_ms)
        after = self._walked.get(keep_ms, ClosedPoint())
        looked = await self._store.history.forget_chosen(is_kept_no_longer, after, before.turns, before.ids)
        self._walked[keep_ms] = looked.after
        return not looked.is_end

    def _cutoffs(self, keep_ms: int) -> Cutoffs:
        clock = self._store.clock
        return cutoffs(replace(self._retention, turns_ms=keep_ms), clock.now(), clock.ahead_ms, clock.doubtful_ms)
