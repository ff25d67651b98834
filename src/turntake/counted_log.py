"""Warnings that strangers can cause. Each kind is logged at once, and then counted: one line a minute, however many."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from turntake.clock import Clock

EVERY_MS = 60_000
KINDS = 100  # lines a minute at the most; whoever calls from ever new addresses is counted as one


class CountedLog:
    """The first warning of a kind is written as it is; those of the next minute become one line with their number.

    A kind is the sentence and the facts that `tell` is told; it must not hold what a stranger can choose freely.
    """

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._more: dict[tuple[str, tuple[Any, ...]], int] = {}
        self._facts: dict[tuple[str, tuple[Any, ...]], Mapping[str, Any]] = {}
        self._timer_of: asyncio.AbstractEventLoop | None = None

    def tell(self, sentence: str, facts: Mapping[str, Any]) -> None:
        """Writes or counts it. It is called on the event loop."""
        kind = (sentence, tuple(facts.values()))
        if kind not in self._more and len(self._more) >= KINDS:
            kind, facts = (sentence, ()), {"action": facts.get("action"), "others": True}
        if kind in self._more:
            self._more[kind] += 1
        else:
            self._log.warning(sentence, extra=facts)
            self._more[kind], self._facts[kind] = 0, facts
        self._set_timer()

    def _set_timer(self) -> None:
        # A loop that ended took its timer with it, as happens when tests use one app in several loops.
        loop = asyncio.get_running_loop()
        if self._timer_of is not loop:
            self._timer_of = loop
            self._clock.call_at(self._clock.now() + EVERY_MS, self._write)

    def _write(self) -> None:
        """The lines of the minute that is over. What went on through it stays counted, the rest is forgotten."""
        self._timer_of = None
        for kind, more in list(self._more.items()):
            if more:
                self._log.warning(kind[0], extra={**self._facts[kind], "times": more, "within_ms": EVERY_MS})
                self._more[kind] = 0
            else:
                del self._more[kind], self._facts[kind]
        if self._more:
            self._set_timer()
