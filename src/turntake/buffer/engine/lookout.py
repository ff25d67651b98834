"""Who looks at which deadlines, where many workers share a backend: `rules/watch.py` decides it."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from turntake.rules.watch import Place


class Lookout(ABC):
    """The workers that live, and when the one of this process must look for due conversations."""

    @abstractmethod
    async def join(self, worker: str, now: int) -> list[str]:
        """Notes that the worker lives, and returns all that do."""

    @abstractmethod
    async def leave(self, worker: str) -> None:
        """The worker ends, and need not be counted on until it is missed."""

    @abstractmethod
    def take_place(self, place: Place) -> None:
        """From here on, offers and looks are only of what falls to this place, and of what is overdue."""

    @abstractmethod
    def expect(self, shard: int, due_at: int) -> None:
        """Somebody else set this deadline."""

    @abstractmethod
    async def next_look(self, now: int) -> int | None:
        """When this process must look for due conversations next; None if nothing waits for it."""


class LoneLookout(Lookout):
    """For a backend that shares nothing out: each worker looks at every deadline, as if it were alone."""

    def __init__(self, next_due: Callable[[], Awaitable[int | None]]) -> None:
        self._next_due = next_due

    async def join(self, worker: str, now: int) -> list[str]:
        return [worker]

    async def leave(self, worker: str) -> None:
        return None

    def take_place(self, place: Place) -> None:
        return None

    def expect(self, shard: int, due_at: int) -> None:
        return None

    async def next_look(self, now: int) -> int | None:
        return await self._next_due()
