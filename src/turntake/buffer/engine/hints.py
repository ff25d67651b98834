"""Word from one process to the others that share a backend."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from turntake.buffer.store import Hint


class HintChannel(ABC):
    """Word from one process to the others. It may be lost: then they look again within the horizon."""

    @abstractmethod
    async def publish(self, hint: Hint) -> None: ...

    @abstractmethod
    def listen(self) -> AsyncIterator[Hint]:
        """What other processes publish, for as long as one listens."""


class NoHints(HintChannel):
    """For a backend that cannot carry them: other processes look once a horizon."""

    async def publish(self, hint: Hint) -> None:
        return None

    async def listen(self) -> AsyncIterator[Hint]:
        return
        yield
