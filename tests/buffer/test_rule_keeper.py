"""Live rules: every process learns of them, and those who wait are told."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from turntake import Arrival, ConversationKey, Message, TurnTake
from turntake.buffer import rule_keeper
from turntake.buffer.document_watch import DocumentWatch
from turntake.buffer.memory import MemoryStore
from turntake.buffer.rule_keeper import DOCUMENT, SEEN_BY_ALL_MS, TELLING_MS, RuleKeeper
from turntake.deliver.echo import echo
from turntake.errors import StoreUnavailable
from turntake.observe.observer import Observer
from turntake.rules.conversation import Buffer, Conversation, Touch
from turntake.rules.live import LiveRules, Said
from turntake.rules.scopes import DEFAULT, RuleScope
from turntake.testing.clock import VirtualClock

ACME, SALES = RuleScope("tenant", "acme"), RuleScope("agent", "sales")
ANN = ConversationKey.of("ann", tenant="acme")
BOB = ConversationKey.of("bob")


def silence(silence_ms: int) -> Said:
    return Said({"silence_ms": silence_ms, "typing_inference_ms": 0})


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock)


@asynccontextmanager
async def processes(store: MemoryStore, count: int = 1, **options: object) -> AsyncIterator[list[TurnTake]]:
    """Several that share a store; none of them works, so that what waits goes on waiting."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(TurnTake(store, clock=store.clock, role="accept", **options))  # type: ignore[arg-type]
            for _ in range(count)
        ]


async def buffer_of(store: MemoryStore, key: ConversationKey) -> Buffer:
    found = await store.find(key)
    assert found is not None
    assert found.conversation.buffer is not None
    return found.conversation.buffer


async def say(turns: TurnTake, key: ConversationKey, id: str = "m1") -> None:
    await turns.receive("hi", conversation=key.conversation, tenant=key.tenant, id=id)


async def told(store: MemoryStore) -> tuple[int, int]:
    document = await store.documents.read(DOCUMENT)
    assert document is not None
    live = msgspec.json.decode(document.body, type=LiveRules)
    return live.told, live.version


async def test_every_process_knows_of_a_change_within_two_seconds(store: MemoryStore, clock: VirtualClock) -> None:
    """The one that made it at once; one that starts later from the start."""
    async with processes(store, 2) as (first, second):
        await first.rule_keeper.change({ACME: silence(7)}, "ann")
        assert first.rules_for(ANN).silence_ms == 7
        assert second.rules_for(ANN).silence_ms == 1_000
        await clock.advance(2_000)
        assert second.rules_for(ANN).silence_ms == 7
        assert second.rules_for(BOB).silence_ms == 1_000
    async with processes(store) as (third,):
        assert third.rules_for(ANN).silence_ms == 7


async def test_two_who_change_at_once_both_count(store: MemoryStore) -> None:
    """Each reads what the other left, whatever it knew before."""
    async with processes(store, 2) as (first, second):
        await first.rule_keeper.change({ACME: silence(7)}, "ann")
        await second.rule_keeper.change({SALES: silence(8)}, "bob")
        assert second.rules_for(ANN).silence_ms == 7
        assert [layer.author for layer in second.rule_keeper.live.layers] == ["ann", "bob"]


async def test_whoever_never_gets_a_turn_at_changing_is_told_so(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(name: str, version: int, body: bytes) -> bool:
        return False

    async with processes(store) as (turns,):
        monkeypatch.setattr(store.documents, "swap", never)
        with pytest.raises(StoreUnavailable, match="try again"):
            await turns.rule_keeper.change({ACME: silence(7)}, "ann")


async def test_what_contradicts_the_settings_is_refused_and_changes_nothing(store: MemoryStore) -> None:
    async with processes(store, rules={"max_wait_ms": 5_000}) as (turns,):
        with pytest.raises(ValueError, match="above max_wait_ms"):
            await turns.rule_keeper.change({ACME: silence(6_000)}, "ann")
        assert await store.documents.read(DOCUMENT) is None
        assert turns.rules_for(ANN).silence_ms == 1_000


async def test_a_process_goes_on_with_what_it_knows_if_the_document_cannot_be_used(
    store: MemoryStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Because of its own settings, or because it is damaged."""
    async with processes(store, 1) as (first,), processes(store, 1, rules={"max_wait_ms": 5_000}) as (second,):
        await first.rule_keeper.change({ACME: silence(6_000)}, "ann")
        await clock.advance(2_000)
        assert second.rules_for(ANN).silence_ms == 1_000
        assert second.rule_keeper.live.version == 0, "it tells nobody of rules that it does not go by"
        assert "above max_wait_ms" in caplog.records[-1].__dict__["reason"]
        document = await store.documents.read(DOCUMENT)
        assert document is not None
        await store.documents.swap(DOCUMENT, document.version, b"{")
        await clock.advance(2_000)
        assert first.rules_for(ANN).silence_ms == 6_000


async def test_a_change_moves_the_deadline_of_what_waits_and_says_so(store: MemoryStore, clock: VirtualClock) -> None:
    """Of those whom it is about, and of nobody else."""
    async with processes(store, rules={"silence_ms": 10_000}) as (turns,):
        await say(turns, ANN)
        await say(turns, BOB)
        arrived_at = clock.now()
        await clock.advance(100)
        await turns.rule_keeper.change({ACME: silence(5_000)}, "ann")
        await clock.advance(0)
        ann, bob = await buffer_of(store, ANN), await buffer_of(store, BOB)
        assert (ann.due.at, ann.due.reason) == (arrived_at + 5_000, "silence")
        assert [decision.reason for decision in ann.decisions] == ["silence", "rules changed"]
        assert ann.decisions[-1].at == arrived_at + 100
        assert bob.due.at == arrived_at + 10_000
        await clock.advance(3_000)
        assert await told(store) == (1, 1)
        assert len((await buffer_of(store, ANN)).decisions) == 2, "the second round finds nothing to change"


async def test_those_who_wait_by_the_old_rules_of_another_process_are_told_too(
    store: MemoryStore, clock: VirtualClock
) -> None:
    """It may buffer for a second before it knows."""
    async with processes(store, 2, rules={"silence_ms": 10_000}) as (first, second):
        await first.rule_keeper.change({ACME: silence(5_000)}, "ann")
        await clock.advance(1)
        await say(second, ANN)
        assert (await buffer_of(store, ANN)).due.at == clock.now() + 10_000
        arrived_at = clock.now()
        await clock.advance(4_000)
        assert (await buffer_of(store, ANN)).due.at == arrived_at + 5_000


async def test_a_conversation_that_has_rules_of_its_own_is_found_without_looking_at_others(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with processes(store) as (turns,):
        await say(turns, ANN)
        monkeypatch.setattr(store.history, "conversations", None)
        own = RuleScope("conversation", str(ANN))
        await turns.rule_keeper.change({own: silence(5_000), RuleScope("conversation", str(BOB)): silence(1)}, "ann")
        await clock.advance(0)
        assert (await buffer_of(store, ANN)).due.at == clock.now() + 5_000


async def test_another_process_goes_on_if_the_one_that_made_a_change_is_gone(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before it was silent for a while."""
    async with processes(store, rules={"silence_ms": 60_000, "max_wait_ms": 90_000}) as (other,):
        await say(other, ANN)
        arrived_at = clock.now()
        async with processes(store) as (dying,):
            monkeypatch.setattr(dying.rule_keeper, "_walk", None)
            await dying.rule_keeper.change({ACME: silence(25_000)}, "ann")
        await clock.advance(TELLING_MS - 1_000)
        assert (await buffer_of(store, ANN)).due.at == arrived_at + 60_000
        await clock.advance(3_000)
        assert (await buffer_of(store, ANN)).due.at == arrived_at + TELLING_MS
        assert await told(store) == (1, 1)


OWN = RuleScope("conversation", str(ANN))


async def keeper_of(store: MemoryStore) -> RuleKeeper:
    """That of one more process, which does only what it is asked to."""
    keeper, watch = RuleKeeper({}), DocumentWatch(store)
    keeper.open(store, watch)
    await watch.look()
    return keeper


class Tellings:
    """Notes who is told by whom."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def by(self, name: str, keeper: RuleKeeper) -> None:
        async def tell(key: ConversationKey) -> None:
            self.seen.append(name)

        await keeper.tell(tell)


async def test_those_who_wait_are_told_at_once_and_once_more_when_all_processes_know(
    store: MemoryStore, clock: VirtualClock
) -> None:
    keeper, tellings = await keeper_of(store), Tellings()
    await keeper.change({OWN: silence(5_000)}, "ann")
    for _ in range(3):
        await tellings.by("first", keeper)
    assert tellings.seen == ["first"]
    await clock.advance(SEEN_BY_ALL_MS)
    for _ in range(3):
        await tellings.by("first", keeper)
    assert tellings.seen == ["first", "first"]
    assert await told(store) == (1, 1)


async def test_of_several_processes_one_goes_on_for_one_that_is_gone(store: MemoryStore, clock: VirtualClock) -> None:
    gone, one, other = [await keeper_of(store) for _ in range(3)]
    tellings = Tellings()
    await gone.change({OWN: silence(5_000)}, "ann")
    for keeper in (one, other):
        await keeper.refresh()
    await clock.advance(TELLING_MS)

    async def tell(key: ConversationKey) -> None:
        tellings.seen.append("other")
        for _ in range(2):
            await tellings.by("one", one)

    await other.tell(tell)
    assert tellings.seen == ["other", "other"]


async def test_a_change_that_comes_while_others_are_told_of_the_one_before_is_told_of_too(
    store: MemoryStore, clock: VirtualClock
) -> None:
    keeper, other = await keeper_of(store), await keeper_of(store)
    await keeper.change({OWN: silence(5_000)}, "ann")
    await clock.advance(SEEN_BY_ALL_MS)

    async def tell(key: ConversationKey) -> None:
        await other.change({OWN: silence(6_000)}, "bob")

    await keeper.tell(tell)
    assert await told(store) == (1, 2)


async def test_whoever_takes_long_to_tell_says_that_it_is_still_there(store: MemoryStore, clock: VirtualClock) -> None:
    keeper, other, tellings = await keeper_of(store), await keeper_of(store), Tellings()
    await keeper.change({OWN: silence(5_000)}, "ann")

    async def tell(key: ConversationKey) -> None:
        await clock.advance(TELLING_MS - 1)
        await other.refresh()
        await tellings.by("other", other)

    await keeper.tell(tell)
    assert tellings.seen == []
    assert await told(store) == (1, 1)


async def test_a_change_for_an_agent_moves_what_waits_for_it(store: MemoryStore, clock: VirtualClock) -> None:
    async with processes(store, rules={"silence_ms": 10_000}) as (turns,):
        await turns.accept([Arrival(ANN, Message("m1", "hi"), "sales"), Arrival(BOB, Message("m1", "hi"), "support")])
        await turns.rule_keeper.change({SALES: silence(5_000)}, "ann")
        await clock.advance(0)
        assert [(await buffer_of(store, key)).due.at - clock.now() for key in (ANN, BOB)] == [5_000, 10_000]


async def test_a_change_may_be_about_one_conversation_and_about_many(store: MemoryStore, clock: VirtualClock) -> None:
    eve = ConversationKey.of("eve", tenant="acme")
    async with processes(store, rules={"silence_ms": 10_000}) as (turns,):
        for key in (ANN, eve):
            await say(turns, key)
        await turns.rule_keeper.change({OWN: silence(6_000), ACME: silence(5_000)}, "ann")
        await clock.advance(0)
        assert [(await buffer_of(store, key)).due.at - clock.now() for key in (ANN, eve)] == [6_000, 5_000]


async def test_many_who_wait_are_told_page_by_page(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who have nothing waiting come last, and end it."""
    monkeypatch.setattr(rule_keeper, "PAGE", 3)
    monkeypatch.setattr(rule_keeper, "AT_ONCE", 2)
    keys = [ConversationKey.of(f"c{number}", tenant="acme") for number in range(10)]
    async with processes(store, rules={"silence_ms": 10_000}) as (turns,):
        for key in keys:
            await say(turns, key)
        await turns.rule_keeper.change({DEFAULT: silence(20_000)}, "ann")
        await clock.advance(0)
        assert {(await buffer_of(store, key)).due.at for key in keys} == {clock.now() + 20_000}


async def test_a_worker_wakes_for_the_deadline_that_a_change_set(store: MemoryStore, clock: VirtualClock) -> None:
    """At the new time, and not at the one that it knew of."""
    async with TurnTake(store, clock=clock, agent=echo, rules={"silence_ms": 20_000}) as turns:
        await say(turns, ANN)
        await clock.advance(100)
        await turns.rule_keeper.change({ACME: silence(3_000)}, "ann")
        await clock.advance(2_899)
        assert (await buffer_of(store, ANN)).due.reason == "silence"
        await clock.advance(1)
        found = await store.find(ANN)
        assert found is not None
        assert found.conversation.state == "idle"


async def test_a_store_that_is_away_is_asked_again(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it starts and while it runs: what is known counts on."""

    async def away(names: object) -> list[int]:
        raise StoreUnavailable("It is away.")

    async with processes(store) as (first,):
        await first.rule_keeper.change({ACME: silence(7)}, "ann")
    with monkeypatch.context() as outage:
        outage.setattr(store.documents, "versions", away)
        async with processes(store) as (second,):
            await clock.advance(2_000)
            assert second.rules_for(ANN).silence_ms == 1_000
            outage.undo()
            await clock.advance(2_000)
            assert second.rules_for(ANN).silence_ms == 7


async def test_going_back_is_a_change_like_any_other(store: MemoryStore, clock: VirtualClock) -> None:
    async with processes(store) as (turns,):
        keeper: RuleKeeper = turns.rule_keeper
        await keeper.change({ACME: silence(7)}, "ann")
        await keeper.change({ACME: silence(8)}, "ann")
        await keeper.roll_back(1, "bob")
        assert turns.rules_for(ANN).silence_ms == 7
        assert keeper.live.changes[-1].author == "bob"


async def test_nobody_is_told_for_whom_nothing_changes(store: MemoryStore, clock: VirtualClock) -> None:
    """Neither the store nor those who watch have anything to do with it."""
    touched: list[tuple[ConversationKey, str]] = []

    class Watching(Observer):
        def touched(self, at: int, key: ConversationKey, touch: Touch, conversation: Conversation) -> None:
            touched.append((key, touch.kind))

    async with processes(store, rules={"silence_ms": 10_000}, observers=[Watching()]) as (turns,):
        await say(turns, ANN)
        await say(turns, BOB)
        await turns.rule_keeper.change({DEFAULT: silence(10_000), ACME: silence(5_000)}, "ann")
        await clock.advance(4_000)
    assert touched == [(ANN, "rules")]


async def test_rules_that_cannot_be_read_are_not_overwritten(store: MemoryStore) -> None:
    """Whoever mends them finds them as they were."""
    await store.documents.swap(DOCUMENT, 0, b"{")
    async with processes(store) as (turns,):
        with pytest.raises(StoreUnavailable, match="The document `rules` in the store"):
            await turns.rule_keeper.change({ACME: silence(7)}, "ann")


async def test_what_was_live_in_another_store_does_not_count_in_this_one(clock: VirtualClock) -> None:
    """Entered again, memory:// is another one."""
    turns = TurnTake("memory://", clock=clock, role="accept")
    async with turns:
        await turns.rule_keeper.change({ACME: silence(7)}, "ann")
    async with turns:
        assert turns.rules_for(ANN).silence_ms == 1_000


async def test_what_was_told_in_another_store_is_told_anew_in_this_one(clock: VirtualClock) -> None:
    """At once, though versions begin at 1 again."""
    first, second = MemoryStore(clock), MemoryStore(clock)
    keeper, tellings = await keeper_of(first), Tellings()
    await keeper.change({OWN: silence(5_000)}, "ann")
    await tellings.by("first", keeper)
    keeper.open(second, DocumentWatch(second))
    await keeper.change({OWN: silence(5_000)}, "ann")
    await tellings.by("second", keeper)
    assert tellings.seen == ["first", "second"]


async def test_a_change_for_some_leaves_others_as_they_are(store: MemoryStore, clock: VirtualClock) -> None:
    """Also those who wait by settings that were others when their messages came."""
    async with processes(store, rules={"silence_ms": 7_000}) as (earlier,):
        await say(earlier, ANN)
        await say(earlier, BOB)
    arrived_at = clock.now()
    async with processes(store, rules={"silence_ms": 10_000}) as (turns,):
        await turns.rule_keeper.change({ACME: silence(5_000)}, "ann")
        await clock.advance(0)
        assert (await buffer_of(store, ANN)).due.at == arrived_at + 5_000
        assert (await buffer_of(store, BOB)).due.at == arrived_at + 7_000
