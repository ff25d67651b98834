"""The savings of several processes, kept in one store of each kind: nothing is lost, doubled, or grows."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from turntake import savings
from turntake.buffer.documents import Document, Documents
from turntake.buffer.memory import MemoryStore
from turntake.buffer.store import Store
from turntake.errors import StoreUnavailable
from turntake.observe.options import SavingsOptions
from turntake.rules.conversation import Answered, SealedTurn
from turntake.rules.deadline import Deadline
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Claim
from turntake.rules.savings import SLOT_GONE_MS, Sums
from turntake.savings import FLUSH_MS, SavingsTotals
from turntake.testing.clock import VirtualClock

AT = 1_700_000_000_000
TURN = SealedTurn("turn_1", 1, 3, Deadline(AT + 1_000, "silence"), AT + 1_000, AT, AT, ())
HEARD = Sums(turns=1, messages=3, added_ms=1_000)


def process(store: Store, call_price: float = 0.0) -> SavingsTotals:
    """One more process of the installation."""
    totals = SavingsTotals(store.clock, SavingsOptions(call_price))
    totals.open(store)
    return totals


def answer(totals: SavingsTotals, tenant: str = "acme") -> None:
    """A turn of three messages is answered there."""
    messages = tuple(Message(f"m{number}", "hi") for number in range(3))
    totals.meter.answered(AT, Claim(ConversationKey.of("ann", tenant=tenant), 1, TURN, messages), Answered())


async def slots(store: Store) -> list[Document]:
    found: list[Document] = []
    while (document := await store.documents.read(f"savings.{len(found)}")) is not None:
        found.append(document)
    return found


@contextmanager
def lost_reply(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Swaps are carried out, and nobody is told."""
    swap = documents.swap

    async def lose(name: str, version: int, body: bytes) -> bool:
        await swap(name, version, body)
        raise StoreUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(documents, "swap", lose)
        yield


async def test_the_sums_of_all_processes_come_together(store: Store) -> None:
    """By tenant; what a process has not written yet, it knows itself."""
    one, two = process(store), process(store)
    answer(one)
    answer(two)
    answer(two, "globex")
    await one.flush()
    assert (await one.read()).by_tenant == {"acme": HEARD}
    await two.flush()
    answer(one)
    assert (await one.read()).by_tenant == {"acme": HEARD + HEARD + HEARD, "globex": HEARD}
    assert (await two.read()).total == HEARD + HEARD + HEARD
    assert len(await slots(store)) == 2


async def test_a_process_goes_on_from_where_another_stopped(store: Store) -> None:
    """A thousand restarts leave one slot, and `since` stays."""
    for _ in range(3):
        totals = process(store)
        answer(totals)
        await totals.flush()
        answer(totals)
        await totals.close()
    saved = await process(store).read()
    assert saved.by_tenant == {"acme": Sums(turns=6, messages=18, added_ms=6_000)}
    assert saved.since == AT
    assert len(await slots(store)) == 1


async def test_the_slot_of_a_killed_process_is_taken_and_counts_on(clock: VirtualClock) -> None:
    store = MemoryStore(clock)
    killed, other = process(store), process(store)
    await clock.advance(FLUSH_MS)
    answer(killed)
    await killed.flush()
    await clock.advance(SLOT_GONE_MS + 1)
    answer(other)
    await other.flush()
    assert len(await slots(store)) == 1
    saved = await other.read()
    assert (saved.total, saved.since) == (HEARD + HEARD, AT)


async def test_a_process_that_was_only_quiet_loses_its_slot_and_no_sums(clock: VirtualClock) -> None:
    """It had nothing to add for a minute, and another took its slot."""
    store = MemoryStore(clock)
    quiet, other = process(store), process(store)
    answer(quiet)
    await quiet.flush()
    await clock.advance(SLOT_GONE_MS + 1)
    answer(other)
    await other.flush()
    answer(quiet)
    await quiet.flush()
    answer(quiet)
    await quiet.flush()
    assert (await other.read()).total.turns == 4
    assert len(await slots(store)) == 2


async def test_a_process_that_lost_its_slot_counts_nothing_twice_in_one_that_was_given_back(
    clock: VirtualClock,
) -> None:
    store = MemoryStore(clock)
    quiet, gone, other = (process(store) for _ in range(3))
    for totals in (quiet, gone):
        answer(totals)
        await totals.flush()
    await clock.advance(SLOT_GONE_MS + 1)
    answer(other)
    await other.flush()
    answer(quiet)
    await quiet.flush()
    assert len(await slots(store)) == 2
    assert (await other.read()).total.turns == 4


async def test_since_is_when_the_first_of_them_began(clock: VirtualClock) -> None:
    """Whoever takes a slot goes on from there, and one more slot changes nothing."""
    store = MemoryStore(clock)
    answer(first := process(store))
    await first.flush()
    for _ in range(2):
        await clock.advance(SLOT_GONE_MS // 2 + 1)
        answer(later := process(store))
        await later.flush()
        assert (await later.read()).since == AT
    assert len(await slots(store)) == 2


async def test_a_write_of_unknown_fate_counts_once(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is written again by the same process, at its next write or its last."""
    store = MemoryStore(clock)
    totals = process(store)
    answer(totals)
    with lost_reply(store.documents, monkeypatch), pytest.raises(StoreUnavailable):
        await totals.flush()
    await totals.flush()
    assert (await process(store).read()).total == HEARD
    answer(totals)
    with lost_reply(store.documents, monkeypatch), pytest.raises(StoreUnavailable):
        await totals.flush()
    await totals.close()
    assert (await process(store).read()).total == HEARD + HEARD


async def test_a_write_that_was_not_carried_out_is_made_again(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing was counted since."""
    store = MemoryStore(clock)
    totals = process(store)
    answer(totals)

    async def away(*_: object) -> bool:
        raise StoreUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(store.documents, "swap", away)
        with pytest.raises(StoreUnavailable):
            await totals.flush()
    await totals.flush()
    assert (await process(store).read()).total == HEARD


async def test_a_write_of_unknown_fate_counts_once_though_another_took_the_slot(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(clock)
    totals, other = process(store), process(store)
    answer(totals)
    with lost_reply(store.documents, monkeypatch), pytest.raises(StoreUnavailable):
        await totals.flush()
    await clock.advance(SLOT_GONE_MS + 1)
    answer(other)
    await other.flush()
    answer(totals)
    await totals.flush()
    assert (await other.read()).total.turns == 3


async def test_one_write_in_ten_seconds_and_none_without_news(clock: VirtualClock) -> None:
    """However many turns end."""
    store = MemoryStore(clock)
    totals = process(store)
    keeping = asyncio.create_task(totals.keep_stored())
    for _ in range(20):
        answer(totals)
        await clock.advance(FLUSH_MS // 10)
    assert [document.version for document in await slots(store)] == [2]
    await clock.advance(10 * FLUSH_MS)
    assert [document.version for document in await slots(store)] == [2]
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await totals.close()
    assert [document.version for document in await slots(store)] == [3]


async def test_the_log_says_what_was_saved_when_a_process_stops(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing if there was no turn."""
    store = MemoryStore(clock)
    totals = process(store, call_price=0.25)
    answer(totals)
    answer(totals, "globex")
    with caplog.at_level(logging.INFO, "turntake"):
        await totals.close()
        await process(store).close()
    (facts,) = (vars(record) for record in caplog.records)
    assert (facts["action"], facts["turns"], facts["messages"]) == ("savings", 2, 6)
    assert (facts["calls_avoided"], facts["added_ms"], facts["saved"]) == (4, 2_000, "1.00 USD")


async def test_a_store_that_hangs_keeps_no_process_from_stopping(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The sums are not worth it."""
    store = MemoryStore(clock)
    totals = process(store)
    answer(totals)

    async def hang(*_: object) -> bool:
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr(store.documents, "swap", hang)
    monkeypatch.setattr(savings, "CLOSE_GRACE_MS", 20)
    async with asyncio.timeout(10):  # milliseconds taken for seconds would be longer
        await totals.close()
    assert "may not be counted" in caplog.text
