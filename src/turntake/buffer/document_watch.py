"""Follows documents that any process may change: whoever wants to know is told within a second."""

import logging
from collections.abc import Callable
from contextlib import suppress

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
        self._firsts: dict[str, Callable[[], bytes]] = {}
        self._seen: dict[str, int] = {}
        self.is_known = False
        """Whether all of them were read once."""

    def follow(self, name: str, on_change: OnChange, first: Callable[[], bytes] | None = None) -> None:
        """From the next look on. Where nobody wrote the document yet, what `first` gives is its first version."""
        self._followed[name] = on_change
        self._seen[name] = 0
        if first is not None:
            self._firsts[name] = first

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
            if version != self._seen[name] or (not version and name in self._firsts):
                await self.read(name)
        self.is_known = True

    async def read(self, name: str) -> Document | None:
        """The document as it is now; whoever follows it is told first."""
        documents = self._store.documents
        document = await documents.read(name)
        if document is None:
            self._seen[name] = 0  # whoever writes it anew begins with the first version
        if document is None and name in self._firsts:
            await documents.swap(name, 0, self._firsts[name]())
            document = await documents.read(name)  # ours, or that of a process that was quicker
        if document is not None and document.version != self._seen[name]:
            self._seen[name] = document.version
            self._tell(name, document)
        return document

    async def keep_looking(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._store.clock.sleep(LOOK_EVERY_MS)
            with suppress(StoreUnavailable):
                await self.look()

    def _tell(self, name: str, document: Document) -> None:
        try:
            self._followed[name](document)
        except (ValueError, msgspec.MsgspecError, StoreUnavailable) as error:
            # It may be damaged, or not fit the settings of this process: what was known before still counts.
            facts = {"action": "look", "document": name, "version": document.version, "reason": str(error)}
            log.error("A document of the store cannot be used; going on as before", extra=facts)
