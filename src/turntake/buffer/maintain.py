"""What an operator may ask of a store beyond its verbs. A store has it or has it not; `turntake doctor` asks."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from turntake.checks import Check
from turntake.clock import Clock


class Examined(ABC):
    """A kind of store that can be looked over without being opened for work."""

    @classmethod
    @abstractmethod
    def examine(cls, url: str, clock: Clock) -> AsyncIterator[Check]:
        """Whether it would open, and how safe what it acknowledges is. Changes nothing.

        What is wrong is a finding and no exception; no finding holds a password.
        """


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
