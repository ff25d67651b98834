"""Keeps what collecting messages saved: the sums of this process go into the store, and those of all come out of it.

How this works: `rules/savings.py` tells of slots. Each is a document. A process writes its own every ten seconds if
there is news, and at its end, when it also gives the slot back; who comes next goes on from what stands there. What is
written is always the whole: what the slot held when it was taken, and all that was counted here since. So to write
again after an error, when nobody knows whether the first write was carried out, counts nothing twice. If another
process took the slot meanwhile, the rest goes into another one.
"""

import asyncio
import logging
import secrets
from typing import NamedTuple

import msgspec

from turntake.buffer.documents import Document
from turntake.buffer.store import Store
from turntake.clock import Clock
from turntake.errors import StoreUnavailable
from turntake.observe.options import SavingsOptions
from turntake.observe.savings import SavingsMeter
from turntake.rules.savings import Savings, SavingsSlot, Sums, add_up, bounded, less, total

log = logging.getLogger("turntake")

FLUSH_MS = 10_000
"""What a process that is killed forgets to count; often enough for figures that people look at."""
ROUNDS = 20  # processes that start together take different slots: each is beaten a few times at most
CLOSE_GRACE_MS = 2_000  # sums are not worth more of the time in which a process must stop
_DOCUMENT = "savings."


class _Held(NamedTuple):
    """A slot of ours. What it holds is `base` and all that was ever counted here."""

    name: str
    version: int
    since: int
    base: dict[str, Sums]


class SavingsTotals:
    """The sums of the whole installation, as far as they are known. `meter` is to be told of what happens here."""

    def __init__(self, clock: Clock, options: SavingsOptions) -> None:
        self.options = options
        self.meter = SavingsMeter()
        self._clock = clock
        self._store: Store | None = None
        self._opened_at = 0
        self._id = secrets.token_hex(8)
        self._held: _Held | None = None
        self._stored: dict[str, Sums] = {}
        self._is_certain = True

    def open(self, store: Store) -> None:
        self._store = store
        self._opened_at = self._clock.now()

    async def keep_stored(self) -> None:
        """Writes what is new now and then, for as long as it runs."""
        while True:
            await self._clock.sleep(FLUSH_MS)
            try:
                await self.flush()
            except StoreUnavailable:
                continue  # nothing is lost: the next write has it all

    async def flush(self) -> None:
        """Writes what is new, if anything is. Raises StoreUnavailable."""
        if self.meter.sums != self._stored or not self._is_certain:
            await self._write(self._id)

    async def close(self) -> None:
        """The last write: it gives the slot back and logs what this process saved. Its store may be closed then."""
        try:
            if self._held is not None or self.meter.sums != self._stored:
                await asyncio.wait_for(self._write(""), CLOSE_GRACE_MS / 1_000)
        except Exception as error:  # whatever it is, it must not keep the process from stopping
            facts = _facts({"error": type(error).__name__})
            log.warning("The store did not answer, so the latest savings may not be counted", extra=facts)
        self._log()
        self._store = self._held = None

    async def read(self) -> Savings:
        """What all processes counted, up to ten seconds ago, and this one up to now. Raises StoreUnavailable."""
        slots: list[SavingsSlot] = []
        while (document := await self._document(_name(len(slots)))) is not None:
            slots.append(_decode(document))
        unwritten = less(self.meter.sums, self._stored)
        since = min((slot.since for slot in slots), default=self._opened_at)
        return Savings(since, add_up([*(slot.sums for slot in slots), unwritten]))

    async def _write(self, holder: str) -> None:
        own = self.meter.sums
        for _ in range(ROUNDS):
            held = self._held = self._held or await self._free_slot()
            slot = SavingsSlot(holder, self._clock.now(), held.since, bounded(add_up((held.base, own))))
            # If this raises, nobody knows: then it counts as stored, since to count it twice would be worse.
            before, self._stored, self._is_certain = self._stored, own, False
            is_ours = await self._known_store().documents.swap(held.name, held.version, msgspec.json.encode(slot))
            self._is_certain = True
            if is_ours:
                self._held = held._replace(version=held.version + 1)
                return
            self._stored = before
            self._held = await self._still_ours(held)
        raise StoreUnavailable("Too many processes count at once; what is not counted now is counted later.")

    async def _free_slot(self) -> _Held:
        """The first that nobody holds. Its holder is written down together with our sums."""
        now, number = self._clock.now(), 0
        while True:
            document = await self._document(_name(number))
            if document is None:
                return _Held(_name(number), 0, self._opened_at, less({}, self._stored))
            slot = _decode(document)
            if slot.is_free(now):
                return _Held(_name(number), document.version, slot.since, less(slot.sums, self._stored))
            number += 1

    async def _still_ours(self, held: _Held) -> _Held | None:
        """The slot as it is after a write of ours whose fate was unknown; None if somebody else took it."""
        document = await self._document(held.name)
        if document is None or _decode(document).holder != self._id:
            return None
        return held._replace(version=document.version)

    async def _document(self, name: str) -> Document | None:
        return await self._known_store().documents.read(name)

    def _known_store(self) -> Store:
        if self._store is None:
            raise StoreUnavailable("TurnTake is not running, so nothing is counted.")
        return self._store

    def _log(self) -> None:
        sums = total(self.meter.sums)
        if sums.calls_avoided:
            log.info("What collecting messages saved since the start", extra=_facts(self.options.facts(sums)))


def _facts(more: dict[str, object]) -> dict[str, object]:
    return {"action": "savings", **more}


def _name(number: int) -> str:
    return f"{_DOCUMENT}{number}"


def _decode(document: Document) -> SavingsSlot:
    try:
        return msgspec.json.decode(document.body, type=SavingsSlot)
    except msgspec.MsgspecError as error:
        raise StoreUnavailable(f"A document `{_DOCUMENT}…` in the store, which holds the savings: {error}.") from None
