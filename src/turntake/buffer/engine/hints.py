"""Word from one process to the others that share a backend."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

import msgspec

from turntake.buffer.store import Hint

_decode = msgspec.json.Decoder(Hint).decode


def read_hint(written: bytes | str) -> Hint | None:
    """None for a hint that cannot be read: a later release may write it in another way."""
    try:
        return _decode(written)
    except (msgspec.MsgspecError, ValueError):
        return None


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
