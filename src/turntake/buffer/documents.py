"""The port for what a whole installation shares beside its conversations: a few small values under fixed names.

Live rules and API keys are such documents. Each is read and written as a whole. Whoever changes one reads it, works out
the next one and swaps it for the version that was read; if somebody else was quicker, it starts again. Whoever must
know of changes asks for versions now and then, which costs next to nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple


class Document(NamedTuple):
    """What stands under a name; the first version is 1."""

    version: int
    body: bytes


class Documents(ABC):
    """Durable once `swap` returns. Raises StoreUnavailable when the store does not answer, or when nobody knows whether
    a swap was carried out: then read again.

    For a document of some hundred kilobytes that changes every few seconds at most. Names are ours, and short.
    """

    @abstractmethod
    async def read(self, name: str) -> Document | None:
        """The document as it is now; None if nobody ever wrote it."""

    @abstractmethod
    async def versions(self, names: Sequence[str]) -> list[int]:
        """The present version of each, 0 for one that nobody wrote."""

    @abstractmethod
    async def swap(self, name: str, version: int, body: bytes) -> bool:
        """Writes the next version if this one is still the present one; 0 means that there is none yet.

        False if somebody else was quicker, and then nothing is changed. Of several callers with one version, one wins.
        """
