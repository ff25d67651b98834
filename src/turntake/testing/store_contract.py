"""What every store must do, by example. Subclass `StoreContract` and say how to open a store.

Needs pytest and pytest-asyncio with `asyncio_mode = "auto"`:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def open_store(self, clock: VirtualClock, tmp_path: Path) -> OpenStore:
            return lambda: MyStore(tmp_path / "file", clock)
"""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
from msgspec.structs import replace

from turntake.buffer.store import Query, Store
from turntake.rules.conversation import Answered, Buffer, Dead, Lease, Progress, ReplyReport, Retry, Settlement, Touch
from turntake.rules.fairness import FairOrder
from turntake.rules.key import ConversationKey
from turntake.rules.message import Attachment, Message
from turntake.rules.records import Append, Appended, Claim, ClosedPoint, Letter, Snapshot, TurnRecord
from turntake.rules.rules import Rules
from turntake.rules.scopes import Layer, RuleBook, RuleScope
from turntake.rules.words import NO_CUE, Cue
from turntake.testing.busy_contract import BusyContract
from turntake.testing.clock import VirtualClock
from turntake.testing.documents_contract import DocumentsContract
from turntake.testing.limits_contract import LimitsContract
from turntake.testing.store_machine import OpenStore, conversations_by_pages, everything

ANN = ConversationKey.of("ann")
BOB = ConversationKey.of("bob")
NOBODY = ConversationKey.of("nobody")
PLAIN = Rules()
OFF = Rules(enabled=False)
INTERRUPT = Rules(on_busy="interrupt", max_interrupts=1)
STOP = Cue("stop")
LEASE_MS = 60_000


async def say(store: Store, *ids: str, key: ConversationKey = ANN, rules: Rules = PLAIN, cue: Cue = NO_CUE) -> Appended:
    """The answer to the last of several messages, each appended by its own call."""
    answers = [await store.append([Append(key, Message(id, f"text of {id}"), rules, cue=cue)]) for id in ids]
    return answers[-1][0]


async def amend(store: Store, id: str, target: str, text: str = "", is_deletion: bool = False) -> Appended:
    """The answer to an edit of another message, or to its deletion."""
    (answer,) = await store.append([Append(ANN, Message(id, text, amends=target, is_deletion=is_deletion), PLAIN)])
    return answer


async def take(store: Store, limit: int = 1, lease_ms: int = LEASE_MS) -> Claim:
    """The one claim there is to have."""
    (claim,) = await store.claim(limit, lease_ms)
    return claim


async def order(store: Store, kind: str, duration_ms: int = 0, key: ConversationKey = ANN) -> None:
    await store.touch(key, Touch(kind, duration_ms), PLAIN)  # type: ignore[arg-type]


async def open_ids(store: Store, key: ConversationKey = ANN) -> list[str]:
    """The ids of the messages that are not settled yet."""
    return ids_of(cast(Snapshot, await store.find(key)))


async def status_of(store: Store) -> tuple[str, int | None, int | None]:
    """Ann's status, since when, and when she wrote last."""
    conversation = cast(Snapshot, await store.find(ANN)).conversation
    return conversation.status, conversation.status_at, conversation.last_message_at


def ids_of(holder: Claim | Snapshot) -> list[str]:
    return [message.id for message in holder.messages]


def texts_of(holder: Claim | Snapshot | TurnRecord | Letter | None) -> list[str]:
    assert holder is not None
    return [message.text for message in holder.messages]


class StoreContract(DocumentsContract, BusyContract, LimitsContract):
    """One class to subclass. Only `open_store` has to be written; a store that forgets sets `is_durable`."""

    is_durable = True

    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def open_store(self, clock: VirtualClock) -> OpenStore:
        """Opens one store, empty at first and the same each time it is called in a test."""
        raise NotImplementedError

    @pytest.fixture
    async def store(self, open_store: OpenStore) -> AsyncIterator[Store]:
        async with open_store() as store:
            yield store

    async def test_append_buffers_and_says_when_it_is_due_and_why(self, store: Store, clock: VirtualClock) -> None:
        """The answer to a message holds the state, the number waiting, the deadline and its reason."""
        answer = await say(store, "m1")
        assert answer == Appended("buffered", "collecting", 1, clock.now() + 1_000, "silence", seq=1)
        assert await store.next_due() == clock.now() + 1_000

    async def test_append_numbers_messages_without_holes_and_keeps_them_whole(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """Every field of a message comes back, with the number and the time that the store gave it."""
        rich = Message(
            "m1",
            "hé\u0000llo",
            "ann",
            5,
            (Attachment("image", "https://x.test/1", metadata={"w": 1}),),
            "m0",
            {"a": [1, None]},
        )
        await store.append([Append(ANN, rich, PLAIN), Append(ANN, Message("m2"), PLAIN)])
        found = cast(Snapshot, await store.find(ANN))
        assert found.messages == (
            replace(rich, seq=1, received_at=clock.now()),
            Message("m2", seq=2, received_at=clock.now()),
        )

    async def test_append_of_a_known_id_changes_nothing(self, store: Store, clock: VirtualClock) -> None:
        """A redelivery is answered as a duplicate while its message waits, is being answered, and afterwards."""
        await say(store, "m1")
        await clock.advance(500)
        assert (await say(store, "m1")).status == "duplicate"
        assert await store.next_due() == clock.now() + 500
        await clock.advance(500)
        claim = await take(store)
        assert (await say(store, "m1")).status == "duplicate"
        await store.settle(claim, Answered())
        assert (await say(store, "m1")) == Appended("duplicate", "idle", 0, None, None)
        assert await open_ids(store) == []

    async def test_append_of_one_id_twice_in_a_call_keeps_one(self, store: Store) -> None:
        """A webhook that carries a message twice buffers it once."""
        twice = [Append(ANN, Message("m1"), PLAIN)] * 2
        assert [answer.status for answer in await store.append(twice)] == ["buffered", "duplicate"]
        assert await open_ids(store) == ["m1"]

    async def test_append_of_nothing_is_answered_with_nothing(self, store: Store) -> None:
        """An empty call is not an error."""
        assert await store.append([]) == []
        assert await store.next_due() is None

    async def test_append_keeps_the_latest_agent_named(self, store: Store, clock: VirtualClock) -> None:
        """A message without an agent leaves the conversation's agent as it is."""
        await store.append([Append(ANN, Message("m1"), PLAIN, "sales"), Append(ANN, Message("m2"), PLAIN)])
        await clock.advance(30_000)
        claim = await take(store)
        record = await store.history.turn(claim.turn.id)
        assert record is not None
        assert (claim.turn.agent, record.agent) == ("sales", "sales")

    async def test_a_new_message_resets_the_deadline(self, store: Store, clock: VirtualClock) -> None:
        """Silence counts from the latest message."""
        await say(store, "m1")
        await clock.advance(900)
        await say(store, "m2", rules=Rules(typing_inference_ms=0))
        assert await store.next_due() == clock.now() + 1_000

    async def test_twenty_concurrent_appends_to_one_conversation_keep_twenty(self, store: Store) -> None:
        """No two of them get one number, and none is lost."""
        ids = [f"m{number}" for number in range(20)]
        await asyncio.gather(*(say(store, id) for id in ids))
        found = cast(Snapshot, await store.find(ANN))
        assert [message.seq for message in found.messages] == list(range(1, 21))
        assert sorted(ids_of(found)) == sorted(ids)

    async def test_the_same_message_sent_ten_times_at_once_is_kept_once(self, store: Store) -> None:
        """Concurrent redeliveries race for one place."""
        answers = await asyncio.gather(*(say(store, "m1") for _ in range(10)))
        assert sorted(answer.status for answer in answers) == ["buffered"] + ["duplicate"] * 9
        assert await open_ids(store) == ["m1"]

    async def test_concurrent_claims_have_one_winner_each(self, store: Store) -> None:
        """Ten workers that ask at once share five conversations without a tie."""
        for number in range(5):
            await say(store, "m1", key=ConversationKey.of(f"c{number}"), rules=OFF)
        claims = await asyncio.gather(*(store.claim(2, LEASE_MS) for _ in range(10)))
        assert sorted(claim.key.conversation for some in claims for claim in some) == [f"c{n}" for n in range(5)]

    async def test_conversations_topics_and_tenants_never_mix(self, store: Store, clock: VirtualClock) -> None:
        """The same id under another topic, tenant, channel or account is another message in another buffer."""
        keys = [
            ANN,
            ConversationKey.of("ann", topic="t"),
            ConversationKey.of("ann", tenant="t"),
            ConversationKey.of("ann", channel="t"),
            ConversationKey.of("ann", account="t"),
        ]
        for key in keys:
            assert (await say(store, "m1", key=key)).waiting == 1
        await clock.advance(1_000)
        claims = await store.claim(10, LEASE_MS)
        assert [claim.key for claim in claims] == sorted(keys, key=str)
        assert len({claim.turn.id for claim in claims}) == 5

    async def test_what_nobody_wrote_to_is_unknown(self, store: Store) -> None:
        """Unknown keys, turns and letters are answered with nothing, and asking creates nothing."""
        assert await store.find(NOBODY) is None
        assert await store.touch(NOBODY, Touch("flush"), PLAIN) is None
        assert await store.history.turn("turn_x") is None
        assert await store.history.turns(NOBODY, 10) == []
        assert await store.letters.get("turn_x") is None
        assert await store.letters.retry("turn_x") is None
        assert not await store.letters.discard("turn_x")
        assert await store.next_due() is None
        assert (await store.history.conversations(Query())).items == ()

    async def test_a_claim_on_an_unknown_conversation_is_a_lost_one(self, store: Store) -> None:
        """A worker whose store was replaced under it is refused, not met with an error."""
        await say(store, "m1", rules=OFF)
        stray = replace(await take(store), key=NOBODY)
        assert await store.extend([stray], LEASE_MS) == [False]
        assert not await store.save(stray, Progress())
        assert not await store.settle(replace(stray, turn=replace(stray.turn, id="turn_x")), Answered())

    async def test_nothing_is_claimed_before_it_is_due(self, store: Store, clock: VirtualClock) -> None:
        """A millisecond early is too early."""
        await say(store, "m1")
        await clock.advance(999)
        assert await store.claim(10, LEASE_MS) == []
        await clock.advance(1)
        assert ids_of(await take(store)) == ["m1"]

    async def test_claims_come_earliest_first_and_no_more_than_asked_for(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """Whoever has been due the longest is served first."""
        for name in ("c", "a", "b"):
            await say(store, "m1", key=ConversationKey.of(name))
            await clock.advance(10)
        await clock.advance(1_000)
        assert [claim.key.conversation for claim in await store.claim(2, LEASE_MS)] == ["c", "a"]
        assert [claim.key.conversation for claim in await store.claim(2, LEASE_MS)] == ["b"]
        assert await store.claim(2, LEASE_MS) == []

    async def test_claims_by_an_order_come_as_it_puts_them(self, store: Store, clock: VirtualClock) -> None:
        """A high priority goes first, then each tenant has its share, and what is left is due as before."""
        for name in ("noisy", "noisy", "noisy", "quiet", "vip"):
            key = ConversationKey.of(str(clock.now()), tenant=name)
            await say(store, "m1", "m2", key=key, rules=OFF)
            await clock.advance(10)
        layers = {RuleScope("tenant", "vip"): Layer({"priority": 1})}
        by_rules = FairOrder(RuleBook(layers).rules_for, slots=100)
        claims = await store.claim(3, LEASE_MS, by_rules)
        assert [(claim.key.tenant, ids_of(claim)) for claim in claims] == [
            ("vip", ["m1"]),
            ("noisy", ["m1"]),
            ("quiet", ["m1"]),
        ]
        assert [claim.key.tenant for claim in await store.claim(3, LEASE_MS)] == ["noisy", "noisy"]
        assert await store.claim(3, LEASE_MS, by_rules) == []

    async def test_an_order_may_leave_a_tenant_waiting(self, store: Store, clock: VirtualClock) -> None:
        """One that answers as many turns as it may gets no more, though there is room."""
        for number in range(3):
            await say(store, "m1", key=ConversationKey.of(f"c{number}", tenant="acme"), rules=OFF)
        layers = {RuleScope("tenant", "acme"): Layer({"tenant_turns": 2})}
        by_rules = FairOrder(RuleBook(layers).rules_for, slots=100)
        assert len(await store.claim(3, LEASE_MS, by_rules)) == 2
        by_rules.running = {"acme": 2}
        assert await store.claim(3, LEASE_MS, by_rules) == []
        by_rules.running = {"acme": 1}
        assert len(await store.claim(3, LEASE_MS, by_rules)) == 1

    async def test_a_crowd_of_one_tenant_hides_nobody(self, store: Store, clock: VirtualClock) -> None:
        """However much of one tenant is due, another's turn is the second that is claimed by its share."""
        crowd = [
            Append(ConversationKey.of(f"c{number}", tenant="noisy"), Message("m1", "hi"), OFF) for number in range(450)
        ]
        await store.append(crowd)
        await clock.advance(200)
        by_rules = FairOrder(RuleBook().rules_for, slots=100)
        await store.claim(1, LEASE_MS, by_rules)
        await clock.advance(10)
        await say(store, "m1", key=ConversationKey.of("c1", tenant="quiet"), rules=OFF)
        await clock.advance(10)
        assert [claim.key.tenant for claim in await store.claim(2, LEASE_MS, by_rules)] == ["noisy", "quiet"]

    async def test_a_turn_has_its_messages_in_the_persons_order(self, store: Store, clock: VirtualClock) -> None:
        """The platform's times decide where every message has one, else the arrival does."""
        late, early = Message("late", sent_at=2), Message("early", sent_at=1)
        await store.append([Append(ANN, late, PLAIN), Append(ANN, early, PLAIN)])
        await store.append([Append(BOB, late, PLAIN), Append(BOB, replace(early, sent_at=None), PLAIN)])
        await clock.advance(30_000)
        assert [ids_of(claim) for claim in await store.claim(2, LEASE_MS)] == [["early", "late"], ["late", "early"]]

    async def test_more_than_a_turn_may_have_is_handed_over_as_several(self, store: Store) -> None:
        """By number and by bytes, in order; what comes while a portion is answered joins the last one."""
        few, small = Rules(capacity=3), Rules(max_turn_bytes=2_000)
        await say(store, *(f"m{number}" for number in range(7)), rules=few)
        big = [Append(BOB, Message(f"m{number}", "x" * 900), small) for number in range(5)]
        await store.append(big)
        taken: dict[ConversationKey, list[list[str]]] = {ANN: [], BOB: []}
        for claim in await store.claim(10, LEASE_MS):
            taken[claim.key].append(ids_of(claim))
            if claim.key == ANN:
                await say(store, "m7", rules=few)
            assert await store.settle(claim, Answered())
        while claims := await store.claim(10, LEASE_MS):
            for claim in claims:
                taken[claim.key].append(ids_of(claim))
                assert await store.settle(claim, Answered())
        assert taken[ANN] == [["m0", "m1", "m2"], ["m3", "m4", "m5"], ["m6", "m7"]]
        assert taken[BOB] == [["m0", "m1"], ["m2", "m3"], ["m4"]]

    async def test_what_comes_back_from_the_letters_is_no_larger_than_a_turn_may_be(self, store: Store) -> None:
        """A crowded buffer that was cleared comes back in its portions, and several letters do not become one turn."""
        few = Rules(capacity=20)
        for start in (0, 45):
            await say(store, *(f"m{number}" for number in range(start, start + 45)), rules=few)
            await store.touch(ANN, Touch("clear"), few)
        letters = sorted((await store.letters.list(10)).items, key=lambda letter: letter.at)
        for letter in letters:
            assert await store.letters.retry(letter.id) is not None
        await say(store, "last", rules=few)
        sizes = []
        while claims := await store.claim(10, LEASE_MS):
            for claim in claims:
                sizes.append(len(claim.messages))
                assert await store.settle(claim, Answered())
        assert sizes == [20, 20, 5, 20, 20, 6]

    async def test_letters_that_are_retried_together_become_one_turn_only_if_they_fit(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """By number and by bytes, as a turn is bounded by default."""
        eve = ConversationKey.of("eve")
        for key, texts in ((ANN, ["x"] * 30), (BOB, ["x" * 75_000] * 2), (eve, ["x"] * 3)):
            for letter in range(2):
                said = (Message(f"m{letter}-{number}", text) for number, text in enumerate(texts))
                await store.append([Append(key, message, PLAIN) for message in said])
                await clock.advance(40_000)
                (claim,) = await store.claim(10, LEASE_MS)
                assert await store.settle(claim, Dead("failed 3 times"))
        for letter_id in [letter.id for letter in (await store.letters.list(10)).items]:
            assert await store.letters.retry(letter_id) is not None
        sizes: dict[ConversationKey, list[int]] = {ANN: [], BOB: [], eve: []}
        while claims := await store.claim(10, LEASE_MS):
            for claim in claims:
                sizes[claim.key].append(len(claim.messages))
                assert await store.settle(claim, Answered())
        assert sizes == {ANN: [30, 30], BOB: [2, 2], eve: [6]}

    async def test_a_claimed_conversation_is_nobody_elses_until_the_lease_ends(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """The lease is the conversation's deadline; when it has run out, the same turn is claimed again."""
        await say(store, "m1", rules=OFF)
        first = await take(store)
        assert await store.next_due() == clock.now() + LEASE_MS
        await clock.advance(LEASE_MS - 1)
        assert await store.claim(1, LEASE_MS) == []
        await clock.advance(1)
        second = await take(store)
        assert (second.turn.id, second.messages) == (first.turn.id, first.messages)
        assert second.epoch > first.epoch
        assert (second.turn.attempt, second.turn.lapses, second.turn.failures) == (2, 1, 0)

    async def test_the_end_of_a_lease_counts_by_its_kind(self, store: Store, clock: VirtualClock) -> None:
        """Alone in its process it was the turn's fault, a promise not kept is the agent's, else nobody knows."""
        await say(store, "m1", rules=OFF)
        counted = []
        kinds: tuple[Lease, ...] = ("", "alone", "promised")
        for kind in kinds:
            claim = await take(store)
            assert await store.extend([claim], LEASE_MS, kind) == [True]
            assert await store.extend([claim], LEASE_MS) == [True]
            await clock.advance(LEASE_MS)
            turn = (await take(store)).turn
            counted.append((turn.lapses, turn.failures))
            await clock.advance(LEASE_MS)
        assert counted == [(1, 0), (3, 1), (4, 2)]

    async def test_a_turn_that_nobody_was_handed_keeps_its_attempt_number(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await say(store, "m1", rules=OFF)
        for _ in range(3):
            claim = await take(store)
            assert claim.turn.attempt == 1
            assert await store.settle(claim, Retry(1_000, is_failure=False, is_tried=False))
            await clock.advance(1_000)

    async def test_a_turn_that_was_handed_back_can_be_brought_forward(self, store: Store, clock: VirtualClock) -> None:
        """By the claim that handed it back, as long as nobody took it; never put off."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        assert await store.settle(claim, Retry(60_000, is_failure=False))
        assert await store.settle(claim, Retry(90_000, is_failure=False))
        assert await store.next_due() == clock.now() + 60_000
        assert await store.settle(claim, Retry(0, is_failure=False))
        await take(store)
        assert not await store.settle(claim, Retry(0, is_failure=False))

    async def test_saving_renews_the_lease(self, store: Store, clock: VirtualClock) -> None:
        """Whoever saves is about to send, and nobody may take over meanwhile."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        await clock.advance(LEASE_MS - 1)
        assert await store.save(claim, Progress(("hello",), 0, True), LEASE_MS)
        assert await store.next_due() == clock.now() + LEASE_MS

    async def test_extend_moves_the_end_of_the_lease(self, store: Store, clock: VirtualClock) -> None:
        """A worker that says it is alive keeps its turn."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        await clock.advance(LEASE_MS - 1)
        assert await store.extend([claim], LEASE_MS) == [True]
        assert await store.next_due() == clock.now() + LEASE_MS

    async def test_a_late_claim_holds_until_somebody_takes_over(self, store: Store, clock: VirtualClock) -> None:
        """A worker that overslept its lease may still finish if nobody noticed."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        await clock.advance(LEASE_MS * 2)
        assert await store.extend([claim], LEASE_MS) == [True]
        assert await store.settle(claim, Answered())

    async def test_a_stale_claim_can_do_nothing(self, store: Store, clock: VirtualClock) -> None:
        """Extend, save and every kind of settlement of an older epoch are refused and change nothing."""
        await say(store, "m1", rules=OFF)
        stale = await take(store)
        await clock.advance(LEASE_MS)
        fresh = await take(store)
        before = await store.find(ANN)
        assert await store.extend([stale, fresh, stale], LEASE_MS) == [False, True, False]
        assert not await store.save(stale, Progress(("no",), 0, True))
        for settlement in (Answered(), Retry(0), Dead("no")):
            assert not await store.settle(stale, settlement)
        assert await store.find(ANN) == before
        assert await store.settle(fresh, Answered())

    async def test_a_saved_answer_survives_its_worker(self, store: Store, clock: VirtualClock) -> None:
        """Whoever takes over finds what was saved, and only sends: the attempt number stays."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        progress = Progress(("one", "two"), 1, True)
        assert await store.save(claim, progress)
        assert cast(Snapshot, await store.find(ANN)).conversation.state == "replying"
        await clock.advance(LEASE_MS)
        taken = await take(store)
        assert taken.turn.progress == progress
        assert taken.turn.attempt == 1

    async def test_settle_removes_its_own_range_and_nothing_else(self, store: Store, clock: VirtualClock) -> None:
        """A message that came during the answer waits on, and its deadline counts from its arrival."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        await say(store, "m2")
        due_at = clock.now() + 1_000
        assert await store.settle(claim, Answered(("hello",)))
        assert await open_ids(store) == ["m2"]
        assert await store.next_due() == due_at
        await clock.advance(1_000)
        assert ids_of(await take(store)) == ["m2"]

    async def test_nothing_is_removed_before_it_is_settled(self, store: Store) -> None:
        """A claim and a saved answer leave the messages where they are."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        assert await open_ids(store) == ["m1"]
        await store.save(claim, Progress(("hello",), 0, True))
        assert await open_ids(store) == ["m1"]

    @pytest.mark.parametrize(("settlement", "other"), [(Answered(("a",)), Dead("x")), (Dead("x"), Answered())])
    async def test_settling_again_changes_nothing(
        self, store: Store, settlement: Answered | Dead, other: Answered | Dead
    ) -> None:
        """The first settlement stands: the same once more is confirmed, another is refused."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        assert await store.settle(claim, settlement)
        before = await everything(store, ANN)
        assert await store.settle(claim, settlement)
        assert not await store.settle(claim, other)
        assert not await store.settle(claim, Retry(0))
        assert await everything(store, ANN) == before

    async def test_a_retry_hands_over_the_same_turn_after_its_pause(self, store: Store, clock: VirtualClock) -> None:
        """Same id, same messages, next attempt; what arrived meanwhile is not part of it."""
        await say(store, "m1", rules=OFF)
        first = await take(store)
        assert await store.settle(first, Retry(5_000, error="boom"))
        await say(store, "m2")
        assert await store.next_due() == clock.now() + 5_000
        await clock.advance(5_000)
        second = await take(store)
        assert (second.turn.id, second.messages) == (first.turn.id, first.messages)
        assert (second.turn.attempt, second.turn.failures, second.turn.error) == (2, 1, "boom")

    async def test_a_handed_back_claim_may_still_answer_but_not_go_on(self, store: Store, clock: VirtualClock) -> None:
        """An answer that came late ends the turn while it waits for its next attempt; a lease is not revived."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        assert await store.settle(claim, Retry(5_000))
        before = await store.find(ANN)
        assert await store.settle(claim, Retry(9_000))
        assert await store.extend([claim], LEASE_MS) == [False]
        assert await store.find(ANN) == before
        assert await store.settle(claim, Answered(("late",)))
        assert await store.next_due() is None

    async def test_a_postponement_costs_no_failure(self, store: Store) -> None:
        """Being told to wait is not a failed attempt."""
        await say(store, "m1", rules=OFF)
        await store.settle(await take(store), Retry(0, is_failure=False))
        assert (await take(store)).turn.failures == 0

    async def test_a_message_during_an_answer_waits_for_the_next_turn(self, store: Store) -> None:
        """By default nothing interrupts."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        answer = await say(store, "m2")
        assert (answer.state, answer.waiting, answer.interrupted) == ("answering", 1, None)
        assert await store.extend([claim], LEASE_MS) == [True]

    async def test_an_interruption_merges_and_fences(self, store: Store, clock: VirtualClock) -> None:
        """The running answer is refused from that moment, and one turn with all messages follows after silence."""
        await say(store, "m1", rules=INTERRUPT)
        await clock.advance(1_000)
        claim = await take(store)
        answer = await say(store, "m2", rules=INTERRUPT)
        assert (answer.interrupted, answer.state, answer.waiting) == (claim.turn.id, "collecting", 2)
        assert cast(Snapshot, await store.find(ANN)).conversation.epoch > claim.epoch
        assert not await store.save(claim, Progress(("late",), 0, True))
        assert not await store.settle(claim, Answered())
        await clock.advance(3_000)
        merged = await take(store)
        assert ids_of(merged) == ["m1", "m2"]
        record = await store.history.turn(claim.turn.id)
        assert record is not None
        assert record.status == "interrupted"

    async def test_a_flush_word_ends_the_wait_and_a_hold_word_lengthens_it(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """What a message says about the wait counts for the deadline that it sets, and is named as its reason."""
        held = await say(store, "m1", cue=Cue("hold"))
        assert (held.due_at, held.reason) == (clock.now() + 15_000, "hold word")
        await clock.advance(5_000)
        cut = await say(store, "m2", cue=Cue("cut"))
        assert (cut.due_at, cut.reason) == (clock.now() + 5_000, "cut text")
        await clock.advance(4_000)
        flushed = await say(store, "m3", cue=Cue("flush"))
        assert (flushed.due_at, flushed.reason) == (clock.now(), "flush word")
        claim = await take(store)
        assert (ids_of(claim), claim.turn.due.reason) == (["m1", "m2", "m3"], "flush word")
        assert [decision.reason for decision in claim.turn.decisions] == ["hold word", "cut text", "flush word"]

    async def test_a_stop_word_overtakes_what_waits_and_is_a_turn_by_itself(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """What waited is kept as stopped, with its messages, and is no dead letter; what comes later waits as usual."""
        await say(store, "m1", "m2")
        answer = await say(store, "m3", cue=STOP)
        assert (answer.status, answer.state, answer.waiting, answer.seq) == ("buffered", "answering", 1, 3)
        assert (answer.due_at, answer.reason, answer.interrupted) == (clock.now(), "stop word", None)
        await say(store, "m4")
        claim = await take(store)
        assert (ids_of(claim), claim.turn.due.reason, claim.turn.attempt) == (["m3"], "stop word", 1)
        record = cast(TurnRecord, await store.history.turn(answer.stopped[0]))
        assert (record.status, texts_of(record)) == ("stopped", ["text of m1", "text of m2"])
        assert record.closed is not None
        assert record.closed.reason == "stop word"
        assert (await store.letters.list(10)).items == ()
        await store.settle(claim, Answered(("stopped",)))
        await clock.advance(1_000)
        later = await take(store)
        assert (ids_of(later), later.turn.due.reason) == (["m4"], "silence")

    async def test_a_stop_word_cancels_the_answer_under_way(self, store: Store, clock: VirtualClock) -> None:
        """The running answer is refused from that moment, and its messages are in no other turn."""
        await say(store, "m1")
        await clock.advance(1_000)
        claim = await take(store)
        await say(store, "m2")
        answer = await say(store, "m3", cue=STOP)
        assert (answer.interrupted, answer.stopped[0], len(answer.stopped)) == (claim.turn.id, claim.turn.id, 2)
        assert not await store.save(claim, Progress(("late",), 0, True))
        assert not await store.settle(claim, Answered(("late",)))
        assert await store.extend([claim], LEASE_MS) == [False]
        assert [(await store.history.turn(id)).status for id in answer.stopped] == ["stopped"] * 2  # type: ignore[union-attr]
        stop = await take(store)
        assert ids_of(stop) == ["m3"]
        assert await store.settle(stop, Answered())
        assert await store.next_due() is None

    async def test_a_stop_word_waits_for_an_answer_that_has_begun_to_leave(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """Nobody can call back what was said. The stop word is the next turn, before anything else that came."""
        await say(store, "m1")
        await clock.advance(1_000)
        claim = await take(store)
        assert await store.save(claim, Progress(("first",), 1))
        await say(store, "m2")
        answer = await say(store, "m3", cue=STOP)
        assert (answer.interrupted, len(answer.stopped)) == (None, 1)
        await say(store, "m4")
        assert await store.claim(10, LEASE_MS) == []
        assert await store.settle(claim, Answered(("first", "second")))
        assert ids_of(await take(store)) == ["m3"]
        assert await open_ids(store) == ["m3", "m4"]

    async def test_of_several_stop_words_the_last_counts(self, store: Store, clock: VirtualClock) -> None:
        """However often somebody says it in a row, one turn waits; a repeated message changes nothing."""
        many = [Append(ANN, Message(id), PLAIN, cue=STOP) for id in ("m1", "m2", "m2", "m3")]
        answers = await store.append(many)
        assert [answer.status for answer in answers] == ["buffered", "buffered", "duplicate", "buffered"]
        assert [len(answer.stopped) for answer in answers] == [0, 1, 0, 1]
        assert await open_ids(store) == ["m3"]
        statuses = [record.status for record in await store.history.turns(ANN, 10)]
        assert sorted(statuses) == ["answering", "stopped", "stopped"]
        assert ids_of(await take(store)) == ["m3"]
        await say(store, "m4", "m5", cue=STOP)
        assert await open_ids(store) == ["m3", "m5"], "the one that is being answered goes on"

    async def test_nothing_merges_with_a_stop_word(self, store: Store, clock: VirtualClock) -> None:
        """Not what comes while it waits, and not what would interrupt another answer."""
        await say(store, "m1", cue=STOP)
        assert (await say(store, "m2", rules=INTERRUPT)).interrupted is None
        claim = await take(store)
        assert ids_of(claim) == ["m1"]
        assert (await say(store, "m3", rules=INTERRUPT)).interrupted is None
        assert await store.settle(claim, Answered())
        await clock.advance(3_000)
        assert ids_of(await take(store)) == ["m2", "m3"]

    async def test_what_was_stopped_is_forgotten_like_what_was_answered(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """With its messages and, later, their ids."""
        await say(store, "m1")
        await say(store, "m2", cue=STOP)
        await store.settle(await take(store), Answered())
        await clock.advance(1)
        assert await store.history.forget(clock.now()) == 2
        assert await store.find(ANN) is None
        assert (await say(store, "m1")).status == "buffered"

    async def test_interruptions_are_limited(self, store: Store, clock: VirtualClock) -> None:
        """After `max_interrupts` the next message waits."""
        for id in ("m1", "m2"):
            await say(store, id, rules=INTERRUPT)
            await clock.advance(3_000)
            await take(store)
        assert (await say(store, "m3", rules=INTERRUPT)).interrupted is None

    async def test_nothing_interrupts_after_something_was_saved(self, store: Store) -> None:
        """Saving, even nothing yet, is the point of no return."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        await store.save(claim, Progress())
        assert (await say(store, "m2", rules=INTERRUPT)).interrupted is None
        assert await store.settle(claim, Answered())

    async def test_switched_off_every_message_is_its_own_turn(self, store: Store) -> None:
        """One message a turn, in order, each due at once after the one before."""
        await say(store, "m1", "m2", "m3", rules=OFF)
        for expected in ("m1", "m2", "m3"):
            claim = await take(store, limit=10)
            assert ids_of(claim) == [expected]
            await store.settle(claim, Answered())
        assert await store.next_due() is None

    async def test_the_rules_are_those_of_the_conversations_agent(self, store: Store, clock: VirtualClock) -> None:
        """A message names it, later ones need not: only the store knows it then, and asks the rules."""
        sales = Layer({"silence_ms": 2_000, "typing_inference_ms": 0, "activity_ms": 9_000, "max_messages": 3})
        rules = RuleBook({RuleScope("agent", "sales"): sales}).of(ANN)
        (first,) = await store.append([Append(ANN, Message("m1"), rules)])
        assert first.due_at == clock.now() + 1_000
        (second,) = await store.append([Append(ANN, Message("m2"), rules, "sales")])
        assert second.due_at == clock.now() + 2_000
        touched = await store.touch(ANN, Touch("composing"), rules)
        assert touched is not None
        assert touched.due_at == clock.now() + 9_000
        (third,) = await store.append([Append(ANN, Message("m3"), rules)])
        assert third.reason == "max messages"

    async def test_other_rules_move_the_deadline_of_what_waits_and_say_so(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """As if the latest message had come under them; a decision tells of it. Nothing moves without need."""
        await say(store, "m1", "m2", rules=Rules(silence_ms=10_000))
        arrived_at = clock.now()
        await clock.advance(100)
        for _ in range(2):
            told = await store.touch(ANN, Touch("rules"), PLAIN)
            assert told is not None
            assert told.buffer is not None
            assert (told.buffer.due.at, told.buffer.due.reason) == (arrived_at + 3_000, "typing")
            assert [decision.reason for decision in told.buffer.decisions][-2:] == ["silence", "rules changed"]
            assert await store.next_due() == arrived_at + 3_000

    async def test_an_amendment_changes_what_waits_and_keeps_the_deadline(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """It has a number, and only its effect is shown: while it waits, in the turn, and in the history."""
        await say(store, "m1", "m2")
        before = cast(Snapshot, await store.find(ANN))
        await clock.advance(900)
        edited = await amend(store, "a1", "m1", "better")
        deleted = await amend(store, "a2", "m2", is_deletion=True)
        assert edited == replace(deleted, seq=3)
        assert edited == Appended("buffered", "collecting", 2, before.conversation.due_at, "typing", seq=3)
        found = cast(Snapshot, await store.find(ANN))
        assert found.messages == (replace(before.messages[0], text="better"),)
        size = cast(Buffer, found.conversation.buffer).size
        assert found.conversation.buffer == replace(cast(Buffer, before.conversation.buffer), amendments=2, size=size)
        await clock.advance(30_000)
        claim = await take(store)
        assert claim.messages == found.messages
        assert (await say(store, "m3")).seq == 5
        await store.settle(claim, Answered())
        assert texts_of(await store.history.turn(claim.turn.id)) == ["better"]
        assert [texts_of(record) for record in await store.history.turns(ANN, 10)] == [["better"]]

    async def test_an_amendment_that_comes_again_changes_nothing(self, store: Store) -> None:
        """The first delivery counts, as with messages."""
        await say(store, "m1")
        await amend(store, "a1", "m1", "better")
        assert (await amend(store, "a1", "m1", "worse")).status == "duplicate"
        assert texts_of(await store.find(ANN)) == ["better"]

    async def test_an_amendment_where_nothing_waits_is_ignored_and_not_kept(self, store: Store) -> None:
        """A turn stays as it was sealed, and an amendment begins no turn and no conversation."""
        held = store.touch(ANN, Touch("hold", 1_000), PLAIN)
        answer, found = await asyncio.gather(amend(store, "a1", "m1", "better"), held)
        assert answer == Appended("ignored", "idle", 0, None, None)
        assert found is None
        assert await store.find(ANN) is None
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        assert (await amend(store, "a1", "m1", "better")).status == "ignored"
        assert texts_of(await store.find(ANN)) == ["text of m1"]
        await store.settle(claim, Answered())
        assert (await amend(store, "a1", "m1", "better")).status == "ignored"
        assert await store.next_due() is None
        assert (await say(store, "a1")).seq == 2

    async def test_an_amendment_finds_what_another_process_buffered(self, store: Store, open_store: OpenStore) -> None:
        """Whatever this one knew of the conversation: nothing waits only if the store says so."""
        if not self.is_durable:
            pytest.skip("this store is for one process's life")
        await say(store, "m1", rules=OFF)
        await store.settle(await take(store), Answered())
        async with open_store() as other:
            await say(other, "m2")
        assert (await amend(store, "a1", "m2", "better")).status == "buffered"
        assert texts_of(await store.find(ANN)) == ["better"]

    async def test_an_amendment_of_a_sealed_message_leaves_it_as_it_is(self, store: Store) -> None:
        """Also where another message waits and could be amended; whoever gets the turn again gets the same."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        await say(store, "m2")
        assert (await amend(store, "a1", "m1", "better")).status == "buffered"
        await store.settle(claim, Retry(0))
        assert (await take(store)).messages == claim.messages
        assert texts_of(await store.find(ANN)) == ["text of m1", "text of m2"]

    async def test_an_amendment_does_not_count_as_a_message(self, store: Store, clock: VirtualClock) -> None:
        """Neither before nor after an interruption brings it back with its turn."""
        rules = Rules(on_busy="interrupt", max_messages=3, silence_ms=1_000, typing_inference_ms=0)
        await say(store, "m1", rules=rules)
        await amend(store, "a1", "m1", "better")
        await amend(store, "a2", "m1", "best")
        await clock.advance(1_000)
        await take(store)
        merged = await say(store, "m2", rules=rules)
        assert (merged.waiting, merged.reason) == (2, "silence")
        assert texts_of(await store.find(ANN)) == ["best", "text of m2"]
        assert (await say(store, "m3", rules=rules)).reason == "max messages"

    async def test_switched_off_an_amendment_goes_with_its_message(self, store: Store) -> None:
        """It is not a turn of its own: what waits with it goes together."""
        await say(store, "m1", "m2", rules=OFF)
        await amend(store, "a1", "m2", "better")
        claim = await take(store)
        assert texts_of(claim) == ["text of m1", "better"]
        await store.settle(claim, Answered())
        assert await store.next_due() is None

    async def test_a_turn_may_lose_all_its_messages(self, store: Store, clock: VirtualClock) -> None:
        """It is still due, claimed and settled, without any."""
        await say(store, "m1")
        await amend(store, "a1", "m1", is_deletion=True)
        assert await open_ids(store) == []
        await clock.advance(1_000)
        claim = await take(store)
        assert (claim.messages, claim.first_at) == ((), clock.now())
        assert await store.settle(claim, Answered())
        assert (await say(store, "m1")).status == "duplicate"

    async def test_a_dead_letter_keeps_its_amendments_and_so_does_its_retry(self, store: Store) -> None:
        """What was edited stays so and what was deleted stays away, whatever else waits by then."""
        await say(store, "m1", "m2")
        await amend(store, "a1", "m1", "better")
        await amend(store, "a2", "m2", is_deletion=True)
        await order(store, "clear")
        (listed,) = (await store.letters.list(10)).items
        letter = await store.letters.get(listed.id)
        assert texts_of(letter) == ["better"]
        assert (listed.count, cast(Letter, letter).count) == (2, 1)
        await say(store, "m3")
        conversation = await store.letters.retry(listed.id)
        assert conversation is not None
        assert (conversation.waiting, conversation.next_seq) == (3, 10)
        assert texts_of(await store.find(ANN)) == ["text of m3", "better"]
        dead = await take(store)
        assert sorted(texts_of(dead)) == ["better", "text of m3"]
        await store.settle(dead, Dead("gave up"))
        (listed,) = (await store.letters.list(10)).items
        assert listed.count == 3
        assert (await amend(store, "a1", "m1")).status == "ignored"

    async def test_forgetting_a_turn_forgets_its_amendments(self, store: Store, clock: VirtualClock) -> None:
        """Their ids are free again, as those of messages are."""
        await say(store, "m1")
        await amend(store, "a1", "m1", "better")
        await clock.advance(1_000)
        await store.settle(await take(store), Answered())
        assert await store.history.forget(clock.now() + 1) == 1
        assert (await say(store, "a1")).status == "buffered"

    async def test_hold_flush_and_composing_move_the_deadline(self, store: Store, clock: VirtualClock) -> None:
        """Composing and hold push it back, stopped brings it forward again, flush makes it now."""
        await say(store, "m1")
        start = clock.now()
        await order(store, "composing", 5_000)
        assert await store.next_due() == start + 5_000
        await order(store, "stopped")
        assert await store.next_due() == start + 1_000
        await order(store, "hold", 60_000)
        assert await store.next_due() == start + 60_000
        await say(store, "m2")
        assert await store.next_due() == start + 60_000
        await order(store, "flush")
        assert await store.next_due() == start
        assert (await take(store)).turn.due.reason == "flushed"

    async def test_clear_moves_what_waits_to_the_dead_letters(self, store: Store) -> None:
        """Even an order to forget loses nothing silently, and leaves a turn that is being answered alone."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        await say(store, "m2", "m3")
        await order(store, "clear")
        assert await open_ids(store) == ["m1"]
        (letter,) = (await store.letters.list(10)).items
        assert (letter.key, letter.reason, letter.count, letter.attempts) == (ANN, "cleared by order", 2, 0)
        assert await store.settle(claim, Answered())

    async def test_a_dead_turn_is_a_letter_until_it_is_discarded(self, store: Store, clock: VirtualClock) -> None:
        """The list has no messages, one letter has; discarding keeps the turn in the history."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        await store.settle(claim, Dead("gave up", "boom", "in line 5"))
        (listed,) = (await store.letters.list(10)).items
        letter = await store.letters.get(claim.turn.id)
        assert letter == replace(listed, messages=claim.messages)
        assert (letter.reason, letter.error, letter.attempts, letter.at) == ("gave up", "boom", 1, clock.now())
        assert letter.trace == "in line 5"
        assert await store.letters.discard(claim.turn.id)
        assert not await store.letters.discard(claim.turn.id)
        assert await store.letters.retry(claim.turn.id) is None
        assert (await store.letters.list(10)).items == ()
        record = await store.history.turn(claim.turn.id)
        assert record is not None
        assert record.status == "dead"

    async def test_a_letter_with_a_complete_answer_is_only_sent(self, store: Store, clock: VirtualClock) -> None:
        """Under the same id, from where it stopped, before what waits; a claim of before counts for nothing."""
        progress = Progress(("one", "two"), 1, True)
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        assert await store.save(claim, progress)
        assert await store.settle(claim, Dead("given up", "no token"))
        await say(store, "m2", rules=OFF)
        await clock.advance(1)
        resumed = await store.letters.retry(claim.turn.id)
        assert resumed is not None
        assert (resumed.state, resumed.due_at) == ("replying", clock.now())
        assert await store.letters.get(claim.turn.id) is None
        assert (await store.letters.list(10)).items == ()
        record = await store.history.turn(claim.turn.id)
        assert record is not None
        assert (record.status, record.closed) == ("replying", None)
        assert not await store.settle(claim, Retry(0))
        again = await take(store)
        assert (again.turn.id, again.turn.progress, ids_of(again)) == (claim.turn.id, progress, ["m1"])
        assert (again.turn.attempt, again.turn.failures, again.turn.claimed_at) == (1, 0, clock.now())
        assert await store.settle(again, Answered())
        assert ids_of(await take(store)) == ["m2"]

    async def test_a_reply_that_failed_is_sent_again_out_of_the_letters(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """That it failed before counts no more: once it is sent again, the turn is answered."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        assert await store.settle(claim, Answered(("one", "two")))
        failed = ReplyReport(1, "failed", clock.now(), "wamid.2", "out of reach")
        assert await store.letters.report(claim.turn.id, failed, lambda key: True) == claim.key
        assert await store.letters.retry(claim.turn.id) is not None
        again = await take(store)
        assert (again.turn.id, again.turn.progress) == (claim.turn.id, Progress(("one", "two"), 1, True))
        assert await store.letters.report(claim.turn.id, failed, lambda key: True) is None, "that was the first try"
        assert await store.settle(again, Answered())
        record = await store.history.turn(claim.turn.id)
        assert record is not None
        assert record.status == "answered"
        assert await store.letters.report(claim.turn.id, failed, lambda key: True) is None
        assert (await store.letters.list(10)).items == ()
        newer = replace(failed, message_id="wamid.3")
        assert await store.letters.report(claim.turn.id, newer, lambda key: True) == claim.key

    async def test_a_complete_answer_out_of_the_letters_waits_for_the_turn_under_way(self, store: Store) -> None:
        """Two of them, in the order in which they were retried, and none of them is lost or overtaken by what waits."""
        letters = []
        for id in ("m1", "m2"):
            await say(store, id, rules=OFF)
            claim = await take(store)
            assert await store.save(claim, Progress((id,), 0, True))
            assert await store.settle(claim, Dead("given up"))
            letters.append(claim.turn.id)
        await say(store, "m3", rules=OFF)
        busy = await take(store)
        await say(store, "m4", rules=OFF)
        for letter_id in letters:
            assert await store.letters.retry(letter_id) is not None
        assert await store.claim(10, LEASE_MS) == []
        assert await open_ids(store) == ["m1", "m2", "m3", "m4"]
        for letter_id in letters:
            record = await store.history.turn(letter_id)
            assert record is not None
            assert (record.status, record.closed) == ("replying", None)
        assert await store.extend([busy], LEASE_MS) == [True]
        assert await store.settle(busy, Answered(("three",)))
        order = []
        while claims := await store.claim(10, LEASE_MS):
            order += [ids_of(claim) for claim in claims]
            assert [await store.settle(claim, Answered()) for claim in claims] == [True]
        assert order == [["m1"], ["m2"], ["m4"]]

    async def test_a_retried_letter_waits_again_and_is_due_at_once(self, store: Store) -> None:
        """Its messages get the next numbers, behind what is waiting, and a new turn."""
        await say(store, "m1", rules=OFF)
        dead = await take(store)
        await store.settle(dead, Dead("gave up"))
        await say(store, "m2")
        conversation = await store.letters.retry(dead.turn.id)
        assert conversation is not None
        assert conversation.waiting == 2
        assert await store.letters.get(dead.turn.id) is None
        claim = await take(store)
        assert sorted(ids_of(claim)) == ["m1", "m2"]
        assert claim.turn.id != dead.turn.id
        assert (await say(store, "m1")).status == "duplicate"

    async def test_a_reply_that_failed_later_makes_a_dead_letter_with_its_answer(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """The platform took it and reported the failure when the turn was long over: the answer is still there."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        await store.settle(claim, Answered(("one", "two")))
        await clock.advance(60_000)
        report = ReplyReport(1, "failed", clock.now(), "wamid.2", "out of reach")
        assert await store.letters.report(claim.turn.id, report, lambda key: key != claim.key) is None, "not theirs"
        assert (await store.letters.list(10)).items == ()
        assert await store.letters.report(claim.turn.id, report, lambda key: key == claim.key) == claim.key
        assert await store.letters.report(claim.turn.id, report, lambda key: True) is None, "it is no news any more"
        (letter,) = (await store.letters.list(10)).items
        assert (letter.reason, letter.error, letter.at, letter.count) == (
            "not delivered",
            "out of reach",
            clock.now(),
            1,
        )
        record = await store.history.turn(claim.turn.id)
        assert record is not None
        assert record.turn is not None
        assert (record.status, record.turn.reports) == ("dead", (report,))
        assert record.turn.progress == Progress(("one", "two"), 1, True)
        assert await store.history.forget(clock.now() + 1) == 0, "dead letters stay"
        assert await store.letters.discard(claim.turn.id)
        newer = replace(report, at=clock.now() + 1, message_id="wamid.3")
        assert await store.letters.report(claim.turn.id, newer, lambda key: True) is None, "nobody wants to know"

    async def test_reports_are_noted_with_a_turn_that_was_answered(self, store: Store, clock: VirtualClock) -> None:
        """In whatever order they come: what is known to be read was delivered. The turn stays answered."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        await store.settle(claim, Answered(("one",)))
        ended_at = clock.now()
        await clock.advance(1_000)
        read, late = (ReplyReport(0, status, clock.now(), "wamid.1") for status in ("read", "delivered"))
        for report, is_news in ((read, True), (late, False), (replace(late, index=1), False)):
            assert (await store.letters.report(claim.turn.id, report, lambda key: True) is not None) == is_news
        record = await store.history.turn(claim.turn.id)
        assert record is not None
        assert record.turn is not None
        assert record.closed is not None
        assert (record.status, record.turn.reports, record.closed.at) == ("answered", (read,), ended_at)
        assert await store.letters.report("turn_unknown", read, lambda key: True) is None
        assert await store.history.forget(ended_at + 1) == 1

    async def test_a_reply_that_failed_before_the_answer_was_complete_makes_a_dead_letter(self, store: Store) -> None:
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        await store.save(claim, Progress(("one", "two"), 1, True))
        report = ReplyReport(0, "failed", 1, "wamid.1", "out of reach")
        assert await store.letters.report(claim.turn.id, report, lambda key: True) == claim.key
        assert (await store.letters.list(10)).items == ()
        answered = Answered(("one", "two"))
        assert await store.settle(claim, answered)
        assert await store.settle(claim, answered), "settling again changes nothing"
        (letter,) = (await store.letters.list(10)).items
        assert (letter.reason, letter.error) == ("not delivered", "out of reach")

    async def test_letters_are_paged_latest_first(self, store: Store, clock: VirtualClock) -> None:
        """Following the cursor shows every letter once; the last page has none."""
        for number in range(5):
            await say(store, f"m{number}", rules=OFF)
            await store.settle(await take(store), Dead(str(number)))
            await clock.advance(1)
        reasons: list[str] = []
        cursor, pages = "", 0
        while cursor or not pages:
            page = await store.letters.list(2, cursor)
            reasons += [letter.reason for letter in page.items]
            cursor, pages = page.cursor, pages + 1
        assert (reasons, pages) == (["4", "3", "2", "1", "0"], 3)

    async def test_conversations_are_paged_by_deadline_with_idle_ones_last(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """Every page size shows every match once, in the same order."""
        names = ["e", "d", "c", "b", "a"]
        for name in names:
            await say(store, "m1", key=ConversationKey.of(name, tenant="odd" if name in "ace" else "even"))
            await clock.advance(1)
        await clock.advance(1_000)
        await store.settle(await take(store), Answered())
        await take(store)
        for limit in (1, 2, 3, 10):
            listed = await conversations_by_pages(store, Query(limit=limit))
            assert [key.conversation for key, _ in listed] == ["c", "b", "a", "d", "e"]
            odd = await conversations_by_pages(store, Query(limit=limit, tenant="odd"))
            assert [key.conversation for key, _ in odd] == ["c", "a", "e"]
            collecting = await conversations_by_pages(store, Query(limit=limit, state="collecting"))
            assert [key.conversation for key, _ in collecting] == ["c", "b", "a"]
            idle = await conversations_by_pages(store, Query(limit=limit, state="idle"))
            assert [key.conversation for key, _ in idle] == ["e"]
        assert (await store.history.conversations(Query(channel="none"))).items == ()

    async def test_the_history_shows_a_turn_while_open_and_once_closed(self, store: Store, clock: VirtualClock) -> None:
        """State, messages, answer and attempts can be read by the turn's id."""
        await say(store, "m1", rules=OFF)
        claim = await take(store)
        record = await store.history.turn(claim.turn.id)
        assert record is not None
        assert (record.status, record.messages, record.turn) == ("answering", claim.messages, claim.turn)
        await store.settle(claim, Answered(("hello",)))
        record = await store.history.turn(claim.turn.id)
        assert record is not None
        assert record.closed is not None
        assert record.turn is not None
        assert (record.key, record.status, record.messages) == (ANN, "answered", claim.messages)
        assert (record.closed.at, record.turn.progress.replies) == (clock.now(), ("hello",))

    async def test_turns_come_newest_first_also_within_a_millisecond(self, store: Store) -> None:
        """Three turns of one moment are listed in reverse, and the limit cuts off the oldest."""
        await say(store, "m1", "m2", "m3", rules=OFF)
        await say(store, "m1", key=BOB, rules=OFF)
        for _ in range(4):
            await store.settle(await take(store), Answered())
        listed = [record.messages[0].id for record in await store.history.turns(ANN, 2)]
        assert listed == ["m3", "m2"]

    async def test_chosen_turns_are_forgotten_and_others_stay(self, store: Store, clock: VirtualClock) -> None:
        """Each is looked at once, from where the last look ended; letters and what is open are left alone."""
        cases = [(f"a{number}", "acme") for number in range(3)] + [("g", "globex"), ("dead", "acme"), ("open", "acme")]
        keys = {name: ConversationKey.of(name, tenant=tenant) for name, tenant in cases}
        for name, key in keys.items():
            await say(store, "m1", key=key, rules=OFF)
            claim = await take(store)
            if name != "open":
                await store.settle(claim, Dead("given up") if name == "dead" else Answered())
            await clock.advance(1_000)
        seen: list[ConversationKey] = []

        def is_chosen(key: ConversationKey, agent: str) -> bool:
            seen.append(key)
            return key.tenant == "acme"

        forgotten, after, is_end = await store.history.forget_chosen(is_chosen, ClosedPoint(), clock.now() - 4_000, 0)
        assert (forgotten, is_end, sorted(seen)) == (2, True, sorted([keys["a0"], keys["a1"]]))
        forgotten, after, is_end = await store.history.forget_chosen(is_chosen, after, clock.now() + 1, clock.now() + 1)
        assert (forgotten, is_end, sorted(seen[2:])) == (1, True, sorted([keys["a2"], keys["g"]]))
        assert await store.history.forget_chosen(is_chosen, after, clock.now() + 1) == (0, after, True)
        kept = [name for name, key in keys.items() if await store.history.turns(key, 1)]
        assert kept == ["g", "dead", "open"]
        assert (await say(store, "m1", key=keys["a0"])).status == "duplicate"
        assert await store.find(keys["a2"]) is None

    async def test_older_turns_are_listed_from_where_a_list_ended(self, store: Store, clock: VirtualClock) -> None:
        """Page by page, each turn once, though one was interrupted and others came meanwhile."""
        await say(store, "m1", "m2", rules=OFF)
        for _ in range(2):
            await store.settle(await take(store), Answered())
        await say(store, "m3")
        await clock.advance(60_000)
        interrupted = await take(store)
        await say(store, "m4", rules=Rules(on_busy="interrupt"))
        await clock.advance(60_000)
        await store.settle(await take(store), Answered())
        first = await store.history.turns(ANN, 1)
        await say(store, "m5")
        second = await store.history.turns(ANN, 2, first[-1].range)
        third = await store.history.turns(ANN, 9, second[-1].range)
        ranges = [record.range for record in (*first, *second, *third)]
        assert ranges == [(3, 4), (3, 3), (2, 2), (1, 1)]
        assert second[0].id == interrupted.turn.id
        assert await store.history.turns(ANN, 9, third[-1].range) == []

    async def test_a_conversation_at_rest_says_how_its_latest_turn_ended(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """And since when, until somebody writes again."""
        endings: tuple[tuple[Settlement, str], ...] = (
            (Answered(("hi",)), "idle"),
            (Dead("failed 3 times"), "failed"),
            (Dead("expired"), "timed_out"),
            (Dead("timed_out"), "timed_out"),
        )
        for number, (settlement, status) in enumerate(endings):
            said_at = clock.now()
            await say(store, f"m{number}")
            await clock.advance(60_000)
            assert await status_of(store) == ("collecting", said_at, said_at)
            claimed_at = clock.now()
            claim = await take(store)
            assert await status_of(store) == ("answering", claimed_at, said_at)
            await clock.advance(1_000)
            await store.settle(claim, settlement)
            assert await status_of(store) == (status, clock.now(), said_at)
            assert [key for key, _ in (await store.history.conversations(Query(status))).items] == [ANN]
            assert (await store.history.conversations(Query("collecting"))).items == ()

    async def test_an_answer_that_leaves_says_since_when_it_is_complete(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await say(store, "m1")
        await clock.advance(60_000)
        claim = await take(store)
        await store.save(claim, Progress(("one", "two"), 1))
        await clock.advance(1_000)
        await store.save(claim, Progress(("one", "two"), 1, is_final=True))
        saved_at = clock.now()
        await clock.advance(1_000)
        await store.save(claim, Progress(("one", "two"), 2, is_final=True))
        status, since, _ = await status_of(store)
        assert (status, since) == ("replying", saved_at)
        await store.settle(claim, Answered(("one", "two")))
        record = await store.history.turn(claim.turn.id)
        assert record is not None
        assert record.turn is not None
        assert record.turn.answered_at == saved_at

    async def test_forget_drops_old_answers_and_keeps_what_is_open_or_dead(
        self, store: Store, clock: VirtualClock
    ) -> None:
        """A forgotten id may come again; a waiting message, a claimed one and a letter are never too old."""
        for id in ("answered", "dead", "claimed", "waiting"):
            await say(store, "m1", key=ConversationKey.of(id), rules=OFF)
        answered, dead, claimed = await store.claim(3, LEASE_MS)
        await store.settle(answered, Answered())
        await store.settle(dead, Dead("gave up"))
        assert await store.history.forget(clock.now()) == 0
        await clock.advance(30 * 24 * 3_600_000)
        assert await store.history.forget(clock.now()) == 1
        assert await store.history.turn(answered.turn.id) is None
        assert (await say(store, "m1", key=answered.key)).status == "buffered"
        assert (await store.letters.list(10)).items[0].id == dead.turn.id
        assert await open_ids(store, claimed.key) == ["m1"]
        assert await open_ids(store, ConversationKey.of("waiting")) == ["m1"]

    async def test_forgetting_a_turn_keeps_what_is_older_and_not_over(self, store: Store, clock: VirtualClock) -> None:
        """A letter, and a turn that is still being answered, keep their messages when later ones are forgotten."""
        await say(store, "dead", "answered", "claimed", "cleared", rules=OFF)
        dead = await take(store)
        await store.settle(dead, Dead("gave up"))
        await store.settle(await take(store), Answered())
        await take(store)
        await order(store, "clear")
        cleared = next(letter for letter in (await store.letters.list(10)).items if letter.id != dead.turn.id)
        await store.letters.discard(cleared.id)
        await clock.advance(1)
        assert await store.history.forget(clock.now()) == 2
        letter = await store.letters.get(dead.turn.id)
        assert letter is not None
        assert letter.messages == dead.messages
        assert await open_ids(store) == ["claimed"]

    async def test_forgetting_an_interrupted_turn_keeps_its_messages(self, store: Store, clock: VirtualClock) -> None:
        """They belong to the turn that took them over."""
        await say(store, "m1", rules=OFF)
        await take(store)
        await say(store, "m2", rules=INTERRUPT)
        await clock.advance(1)
        assert await store.history.forget(clock.now()) == 1
        assert await open_ids(store) == ["m1", "m2"]

    async def test_forgetting_a_retried_letter_keeps_its_messages(self, store: Store, clock: VirtualClock) -> None:
        """They wait under new numbers, and their ids stay known."""
        await say(store, "m1", rules=OFF)
        dead = await take(store)
        await store.settle(dead, Dead("gave up"))
        await store.letters.retry(dead.turn.id)
        await clock.advance(1)
        assert await store.history.forget(clock.now()) == 1
        assert await open_ids(store) == ["m1"]
        assert (await say(store, "m1")).status == "duplicate"

    async def test_ids_are_known_for_longer_than_what_was_said(self, store: Store, clock: VirtualClock) -> None:
        """The turn and its words are gone; a message that comes again is still none. In time the ids go too, and those
        of a later turn stay."""
        turns = []
        for ids in (("m1", "m2"), ("m3",)):
            await say(store, *ids)
            await clock.advance(5_000)
            turns.append(await take(store))
            await store.settle(turns[-1], Answered())
        start = turns[0].turn.claimed_at
        await clock.advance(1_000)
        assert await store.history.forget(clock.now(), start) == 2
        assert await store.history.turns(ANN, 10) == []
        assert await store.history.turn(turns[0].turn.id) is None
        for id in ("m1", "m2", "m3"):
            assert (await say(store, id)).status == "duplicate"
        assert await store.history.forget(clock.now(), start + 1) == 2
        assert (await say(store, "m3")).status == "duplicate"
        assert (await say(store, "m1", rules=OFF)).status == "buffered"
        assert ids_of(await take(store)) == ["m1"]
        assert await store.history.forget(clock.now(), clock.now()) == 1
        assert await open_ids(store) == ["m1"]

    async def test_ids_go_with_what_was_said_if_they_are_old_enough(self, store: Store, clock: VirtualClock) -> None:
        """Ids are kept no shorter than the words of their turn, whatever is asked for."""
        await say(store, "m1", rules=OFF)
        await store.settle(await take(store), Answered())
        await clock.advance(1)
        assert await store.history.forget(clock.now() - 1, clock.now()) == 0
        assert (await say(store, "m1")).status == "duplicate"
        assert await store.history.forget(clock.now(), clock.now()) == 1
        assert (await say(store, "m1")).status == "buffered"

    async def test_a_conversation_of_which_nothing_is_left_is_dropped(self, store: Store, clock: VirtualClock) -> None:
        """It is unknown then, and listed no more. One with an id, a letter or a turn left is there."""
        for name in ("over", "id", "letter", "open"):
            await say(store, "m1", key=ConversationKey.of(name), rules=OFF)
        claims = {claim.key.conversation: claim for claim in await store.claim(4, LEASE_MS)}
        await store.settle(claims["over"], Answered())
        await store.settle(claims["letter"], Dead("gave up"))
        await clock.advance(1)
        await store.settle(claims["id"], Answered())
        await clock.advance(1)
        assert await store.history.forget(clock.now(), clock.now() - 1) == 2
        listed = [key.conversation for key, _ in await conversations_by_pages(store, Query(limit=2))]
        assert sorted(listed) == ["id", "letter", "open"]
        assert await store.find(ConversationKey.of("over")) is None
        assert await store.touch(ConversationKey.of("over"), Touch("flush"), PLAIN) is None
        assert await store.letters.discard(claims["letter"].turn.id)
        assert await store.history.forget(clock.now(), clock.now()) == 2
        assert [key.conversation for key, _ in await conversations_by_pages(store, Query(limit=2))] == ["open"]

    async def test_a_conversation_that_begins_anew_repeats_no_turn(self, store: Store, clock: VirtualClock) -> None:
        """Numbers and claims count from the start; whoever held a claim before can do nothing with it now."""
        await say(store, "m1", rules=OFF)
        before = await take(store)
        await store.settle(before, Answered(("hello",)))
        await clock.advance(1)
        assert await store.history.forget(clock.now()) == 1
        assert (await say(store, "m1", rules=OFF)).seq == 1
        claim = await take(store)
        assert claim.turn.id != before.turn.id
        assert await store.extend([before], LEASE_MS) == [False]
        assert not await store.save(before, Progress(("late",), 0, True))
        assert not await store.settle(before, Answered(("hello",)))
        assert await store.settle(claim, Answered(("again",)))
        assert len(await store.history.turns(ANN, 10)) == 1

    async def test_letters_of_some_age_are_discarded_and_no_others(self, store: Store, clock: VirtualClock) -> None:
        """As if somebody had discarded each: the turn stays in the history for its time."""
        for number in range(3):
            await say(store, f"m{number}", rules=OFF)
            await store.settle(await take(store), Dead(str(number)))
            await clock.advance(1_000)
        assert await store.letters.discard_older(clock.now() - 1_000) == 2
        assert await store.letters.discard_older(clock.now() - 1_000) == 0
        assert [letter.reason for letter in (await store.letters.list(10)).items] == ["2"]
        assert len(await store.history.turns(ANN, 10)) == 3

    async def test_reopening_keeps_everything(self, open_store: OpenStore, clock: VirtualClock) -> None:
        """Waiting messages, claims, saved answers, letters, history and known ids outlive the process."""
        if not self.is_durable:
            pytest.skip("this store is for one process's life")
        async with open_store() as store:
            for name in ("answered", "dead", "claimed", "waiting"):
                await say(store, "m1", key=ConversationKey.of(name), rules=OFF)
            answered, dead, claimed = await store.claim(3, LEASE_MS)
            await store.settle(answered, Answered())
            await store.settle(dead, Dead("gave up"))
            await store.save(claimed, Progress(("hello",), 0, True))
            keys = (answered.key, dead.key, claimed.key, ConversationKey.of("waiting"))
            before = await everything(store, *keys)
        for _ in range(2):
            async with open_store() as store:
                assert await everything(store, *keys) == before
                assert (await say(store, "m1", key=answered.key)).status == "duplicate"
                assert await store.extend([claimed], LEASE_MS) == [True]
