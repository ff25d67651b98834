"""Opens the store behind a URL, and says what an operator may ask of one beyond its verbs."""

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from turntake import plugins
from turntake.buffer.store import Store
from turntake.clock import Clock
from turntake.errors import ConfigurationError
from turntake.finding import Finding

CLOCK_WRONG_MS = 60_000  # less than a minute is a matter of synchronisation, and passes
SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def open_store(url: str, clock: Clock) -> Store:
    """The store behind a URL, ready for `async with`."""
    store: Store = store_kind(url).open(url, clock)
    return store


def store_kind(url: str) -> Any:
    """The class of the store behind a URL. What is no URL is not repeated, since it may hold a password."""
    scheme = SCHEME.match(url)
    if scheme is None:
        raise ConfigurationError(
            "The store is no URL: write sqlite:///turntake.db, redis://host:6379/0 or postgresql://user@host/database "
            "(`host=… user=…` is not read)."
        )
    return plugins.load("stores", scheme[1])


class Examined(ABC):
    """A kind of store that can be looked over without being opened for work."""

    @classmethod
    @abstractmethod
    def examine(cls, url: str, clock: Clock) -> AsyncIterator[Finding]:
        """Whether it would open, and how safe what it acknowledges is. Changes nothing.

        What is wrong is a finding and no exception; no finding holds a password.
        """


class Clocked(ABC):
    """An open store that notes the time, so that a clock which was set back stalls nothing."""

    @abstractmethod
    async def reset_clock(self) -> int:
        """Sets the time back to what the clock says, and every deadline with it; returns by how many milliseconds.

        No other process may be at work meanwhile: it would note its own time again. Doing it again is harmless.
        """


def clock_findings(at: int, noted_at: int) -> list[Finding]:
    """What to say about the time that a store has noted, while the clock that counts says `at`: nothing if it fits."""
    ahead_ms = noted_at - at
    if ahead_ms <= CLOCK_WRONG_MS:
        return []
    text = f"the store's time is {ahead_ms // 1000:,} s ahead, since a clock was so once; it runs a tenth slower until"
    do = "the clock has caught up. To set it right now: stop every process and run `turntake doctor --reset-clock`"
    return [Finding("warn", "clock", f"{text} {do}")]


class Maintained(ABC):
    """An open store with data that is derived, or a schema that changes in two steps."""

    @abstractmethod
    async def rebuild(self) -> int:
        """Restores the index of deadlines from the conversations alone; returns how many entries were mended.

        Others may go on working meanwhile. Doing it again is harmless.
        """

    @abstractmethod
    async def finish_upgrade(self) -> list[str]:
        """Runs the migrations that had to wait for the last process of the old version; returns their names.

        Doing it again finds nothing to do.
        """
