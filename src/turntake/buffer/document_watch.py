"""Follows documents that any process may change: whoever wants to know is told within a second."""

import logging
from collections.abc import Callable

import msgspec

from turntake.buffer.documents import Document
from turntake.buffer.store import Store
from turntake.errors import StoreUnavailable

log = logging.getLogger("turntake")

# All processes know of a change within two seconds, and one short question a second is little beside a worker's own.
LOOK_EVERY_MS = 1_000

OnChange = Callable[[Document], None]
"""Told of a document in a version that it was not told of before. Raises ValueError or MsgspecError if it cannot be
used."""


class DocumentWatch:
    """One question for all documents that it follows. A store that is away is asked again; what is known stays so."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followed: dict[str, OnChange] = {}
        self._seen: dict[str, int] = {}

    def follow(self, name: str, on_change: OnChange) -> None:
        """From the next look on."""
        self._followed[name] = on_change
        self._seen[name] = 0

    async def start(self) -> None:
        """The first look. A part of the store that is away keeps nobody from starting: it is asked again soon."""
        try:
            await self.look()
        except StoreUnavailable as error:
            facts = {"action": "start", "reason": str(error)}
            log.error("What is shared in the store, such as live rules, cannot be read yet", extra=facts)

    async def look(self) -> None:
        """Tells of what changed since the last look. Raises StoreUnavailable."""
        names = list(self._followed)
        for name, version in zip(names, await self._store.documents.versions(names), strict=True):
            if version != self._seen[name]:
                await self.read(name)

    async def read(self, name: str) -> Document | None:
        """The document as it is now; whoever follows it is told first."""
        document = await self._store.documents.read(name)
        if document is not None and document.version != self._seen[name]:
            self._seen[name] = document.version
            self._tell(name, document)
        return document

    def _tell(self, name: str, document: Document) -> None:
        try:
            self._followed[name](document)
        except (ValueError, msgspec.MsgspecError, StoreUnavailable) as error:
            # It may be damaged, or not fit the settings of this process: what was known before still counts.
            facts = {"action": "look", "document": name, "version": document.version, "reason": str(error)}
            log.error("A document of the store cannot be used; going on as before", extra=facts)
