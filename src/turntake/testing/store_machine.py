"""The same random life for the model and for a store, which must answer alike at every step.

Subclass `StoreMachine`, say how to open a store, and run its `TestCase`. Needs Hypothesis.
`ModelMachine` alone lives that life on the model and checks the promises there.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from turntake.buffer.memory import MemoryStore
from turntake.buffer.store import Query, Store
from turntake.rules.conversation import (
    Answered,
    Conversation,
    Dead,
    Lease,
    Progress,
    ReplyReport,
    Retry,
    Settlement,
    Touch,
)
from turntake.rules.fairness import FairOrder
from turntake.rules.key import ConversationKey
from turntake.rules.message import Attachment, Message, as_said, in_order
from turntake.rules.records import Append, Claim, ClosedPoint
from turntake.rules.rules import Rules, RulesByAgent
from turntake.rules.scopes import Layer, RuleBook, RuleScope
from turntake.rules.transitions import holds, turn_id
from turntake.rules.words import NO_CUE, Cue
from turntake.testing.clock import VirtualClock
from turntake.testing.store_ledger import Ledger

T = TypeVar("T")
OpenStore = Callable[[], AbstractAsyncContextManager[Store]]

KEYS = (
    ConversationKey.of("ann"),
    ConversationKey.of("ann", topic="order 7"),
    ConversationKey.of("ann", tenant="acme"),
    ConversationKey.of("bob"),
)
STRANGER = ConversationKey.of("nobody")
RULES = (
    Rules(),
    Rules(silence_ms=500, typing_inference_ms=500, max_wait_ms=5_000),
    Rules(window_ms=2_000),
    Rules(min_messages=2, max_messages=3, max_wait_ms=5_000),
    Rules(capacity=3),
    Rules(enabled=False),
    Rules(on_busy="interrupt"),
    Rules(on_busy="interrupt", max_interrupts=1, max_wait_ms=2_000),
    Rules(on_stale="regenerate", max_interrupts=2),
    Rules(on_stale="discard", max_interrupts=1),
    Rules(on_busy="steer", capacity=4),
    Rules(on_busy="reject"),
)
STEER = Rules(on_busy="steer")
AGENTS = ("", "sales")
BY_AGENT = RuleBook({RuleScope("agent", "sales"): Layer({"max_messages": 2, "silence_ms": 2_000})}).of(STRANGER)
"""Rules that only the store can tell, since it alone knows the agent that a conversation has."""
PAUSES_MS = (0, 1, 499, 500, 1_000, 3_000, 5_000, 60_000, 3_600_000)
LEASE_MS = 60_000
LEASES_MS = (1, 1_000, LEASE_MS)
WORKERS = ("w1", "w2", "w3")
ALL = 1_000

ids = st.integers(1, 12).map("m{}".format)
senders = st.sampled_from(["", "", "ann", "ben"])
messages = st.builds(
    Message,
    id=ids,
    text=st.sampled_from(["hi", "and", "it is late"]),
    sender=senders,
    sent_at=st.none() | st.integers(1, 5),
)
amendments = st.builds(
    Message,
    id=st.integers(1, 12).map("a{}".format),
    text=st.sampled_from(["", "better", "much better"]),
    sender=senders,
    attachments=st.sampled_from([(), (), (Attachment("image"),)]),
    amends=ids | st.sampled_from(["a1", "unknown"]),
    is_deletion=st.booleans(),
)
cues = st.sampled_from([NO_CUE, NO_CUE, NO_CUE, Cue("flush"), Cue("hold"), Cue("cut"), Cue("stop")])
limits = st.sampled_from(["", "", "", "", "messages_per_minute"])
arrivals = st.builds(
    Append,
    key=st.sampled_from(KEYS),
    message=messages,
    rules=st.sampled_from((*RULES, BY_AGENT)),
    agent=st.sampled_from(["", *AGENTS]),
    cue=cues,
    over=limits,
)
orders = st.builds(
    Touch,
    kind=st.sampled_from(["composing", "stopped", "flush", "hold", "clear", "rules"]),
    duration_ms=st.sampled_from([0, 1_000, 60_000]),
)
progresses = st.sampled_from([Progress(), Progress(("one", "two"), 1, False), Progress(("one", "two"), 1, True)])
settlements: st.SearchStrategy[Settlement] = st.sampled_from(
    [
        Answered(("hello",)),
        Answered(),
        Retry(0),
        Retry(1_000, error="busy"),
        Retry(1_000, is_failure=False),
        Retry(1_000, is_failure=False, is_tried=False),
        Retry(1_000, is_failure=False, error="nobody", is_away=True),
        Retry(0, is_failure=False, progress=Progress(("hello",), is_final=True)),
        Dead("failed 3 times", "boom", "in line 5"),
    ]
)
URGENCY = RuleBook(
    {
        RuleScope("tenant", "acme"): Layer({"share": 300, "priority": -1}),
        RuleScope("agent", "sales"): Layer({"priority": 2}),
        RuleScope("conversation", str(KEYS[-1])): Layer({"priority": 1}),
    }
)


def claim_order(running: dict[str, int], is_by_agent: bool) -> FairOrder:
    """An order in which no claim was made yet, for a worker that answers these turns."""
    order = FairOrder(URGENCY.rules_for, slots=10)
    order.running, order.is_by_agent, order.has_tenants = running, is_by_agent, True
    return order


claim_orders = st.none() | st.builds(
    claim_order, st.sampled_from([{}, {"default": 8}, {"acme": 9}]), is_by_agent=st.booleans()
)
reports = st.builds(
    ReplyReport,
    index=st.sampled_from([0, 0, 1, 2]),
    status=st.sampled_from(["sent", "delivered", "read", "failed", "failed"]),
    at=st.just(0),
    message_id=st.sampled_from(["first", "first", "again"]),
    error=st.sampled_from(["", "out of reach"]),
)
anyone = st.integers(0, 7)


class ModelMachine(RuleBasedStateMachine):
    """Several people write, several workers answer, crash, and come back too late."""

    is_durable = False

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.reference = MemoryStore(self.clock)
        self.model = self.reference.model
        self.ledger = Ledger()
        self.claims: list[Claim] = []
        self.held: dict[str, list[Claim]] = {worker: [] for worker in WORKERS}
        self.settled: list[tuple[Claim, Settlement]] = []

    def ask(self, verb: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """The model's answer; a subclass makes sure that its store gives the same."""
        return at_once(verb(self.reference))

    @rule(batch=st.lists(arrivals, min_size=1, max_size=3))
    def append(self, batch: list[Append]) -> None:
        for arrival, answer in zip(batch, self.ask(lambda store: store.append(batch)), strict=True):
            self.ledger.appended(arrival, answer, self.clock.now())

    @rule(batch=st.lists(arrivals, min_size=1, max_size=3), worker=st.sampled_from(WORKERS))
    def append_and_claim(self, batch: list[Append], worker: str) -> None:
        """The two most usual steps as one, since Hypothesis leaves out about half of all rules in each life."""
        self.append(batch)
        self.claim(worker, 4, LEASE_MS, 0)

    @precondition(lambda self: any(self.held.values()))
    @rule(which=anyone, message=messages, rules=st.sampled_from(RULES), cue=cues)
    def append_during_an_answer(self, which: int, message: Message, rules: Rules, cue: Cue) -> None:
        self.append([Append(self._held(which)[1].key, message, rules, cue=cue)])

    @rule(
        key=st.sampled_from(KEYS),
        batch=st.lists(messages | amendments, min_size=1, max_size=3),
        rules=st.sampled_from(RULES),
    )
    def append_over_a_limit(self, key: ConversationKey, batch: list[Message], rules: Rules) -> None:
        """Whatever waits or is being answered, it stays as it is."""
        before = self.model.conversations.get(key, Conversation())
        self.append([Append(key, message, rules, "sales", over="tenant_bytes_per_minute") for message in batch])
        after = self.model.conversations.get(key, Conversation())
        assert replace(after, aside=None) == replace(before, aside=None)

    @rule(key=st.sampled_from(KEYS), batch=st.lists(amendments, min_size=1, max_size=3), rules=st.sampled_from(RULES))
    def amend(self, key: ConversationKey, batch: list[Message], rules: Rules) -> None:
        """An edit or a deletion, of what waits or of anything else, moves nothing but the next number."""
        before = self.model.conversations.get(key)
        self.append([Append(key, message, rules, "sales") for message in batch])
        assert unamended(self.model.conversations.get(key)) == unamended(before)

    @precondition(lambda self: any(map(self.ledger.waiting, KEYS)))
    @rule(which=anyone, amendment=amendments, message=messages, rules=st.sampled_from(RULES))
    def amend_what_waits(self, which: int, amendment: Message, message: Message, rules: Rules) -> None:
        """A message and an edit or a deletion of another one, in one call."""
        waiting = [(key, target) for key in KEYS for target in self.ledger.waiting(key)]
        key, target = waiting[-1 - which % len(waiting)]
        amending = replace(amendment, amends=target.id, sender=target.sender)
        self.append([Append(key, message, rules), Append(key, amending, rules)])

    @rule(duration_ms=st.sampled_from(PAUSES_MS))
    def let_time_pass(self, duration_ms: int) -> None:
        at_once(self.clock.advance(duration_ms))

    @rule(key=st.sampled_from((*KEYS, STRANGER)), order=orders, rules=st.sampled_from((*RULES, BY_AGENT)))
    def touch(self, key: ConversationKey, order: Touch, rules: RulesByAgent) -> None:
        before = self.model.find(key)
        after = self.ask(lambda store: store.touch(key, order, rules))
        assert (after is None) == (before is None)
        if before is None or before.conversation.buffer is None:
            return
        self.ledger.max_wait_ms[key] = max(self.ledger.max_wait_ms[key], rules.of("").max_wait_ms)
        if order.kind == "clear":
            head, tail = before.conversation.buffer.head, before.conversation.next_seq - 1
            letter_id = turn_id(key, head, tail, before.conversation.began_at)
            self.ledger.end(key, letter_id, range(head, tail + 1), self.clock.now(), is_letter=True)

    @rule(
        worker=st.sampled_from(WORKERS),
        limit=st.sampled_from([1, 2, 4]),
        lease_ms=st.sampled_from(LEASES_MS),
        late_ms=st.sampled_from([0, 0, 0, -1, 1, None]),
        order=claim_orders,
    )
    def claim(
        self, worker: str, limit: int, lease_ms: int, late_ms: int | None, order: FairOrder | None = None
    ) -> None:
        """At once, or once the next deadline has come, a little early or late; the earliest, or by the rules."""
        due_at = self.model.next_due()
        if due_at is not None and late_ms is not None:
            at_once(self.clock.advance(max(0, due_at + late_ms - self.clock.now())))
        claims = self.ask(lambda store: store.claim(limit, lease_ms, order))
        assert len(claims) <= limit
        assert len({claim.key for claim in claims}) == len(claims)
        for claim in claims:
            self.ledger.claimed(claim, lease_ms, self.clock.now())
        self.claims += claims
        self.held[worker] += claims

    @rule(
        worker=st.sampled_from(WORKERS),
        lease_ms=st.sampled_from(LEASES_MS),
        lease=st.sampled_from([None, "", "alone", "promised"]),
    )
    def extend(self, worker: str, lease_ms: int, lease: Lease | None) -> None:
        claims = self.held[worker] + self.claims[:1]
        answers = self.ask(lambda store: store.extend(claims, lease_ms, lease))
        for claim, still_holds in zip(claims, answers, strict=True):
            if still_holds:
                self.ledger.extended(claim, lease_ms, self.clock.now())

    @precondition(lambda self: self.claims)
    @rule(which=anyone, progress=progresses, lease_ms=st.sampled_from((0, *LEASES_MS)))
    def save(self, which: int, progress: Progress, lease_ms: int) -> None:
        claim = self.claims[-1 - which % len(self.claims)]
        if self.ask(lambda store: store.save(claim, progress, lease_ms)):
            self.ledger.save(claim, lease_ms, self.clock.now())
        else:
            self._see_whether_stale(claim)

    @precondition(lambda self: self.claims)
    @rule(which=anyone, rules=st.sampled_from([STEER, STEER, Rules()]), message=messages)
    def absorb(self, which: int, rules: Rules, message: Message) -> None:
        """Whoever answers, or answered once, takes what waits into the turn."""
        claim = self.claims[-1 - which % len(self.claims)]
        self.append([Append(claim.key, message, rules)])
        grown = self.ask(lambda store: store.absorb(claim, rules))
        if grown is not None:
            self.ledger.absorbed(grown, rules)

    @precondition(lambda self: any(self.held.values()))
    @rule(which=anyone, settlement=settlements)
    def settle(self, which: int, settlement: Settlement) -> None:
        worker, claim = self._held(which)
        self.held[worker].remove(claim)
        self._settle(claim, settlement)
        self.settled.append((claim, settlement))

    @precondition(lambda self: self.settled)
    @rule(which=anyone)
    def settle_again(self, which: int) -> None:
        self._settle(*self.settled[-1 - which % len(self.settled)])

    @precondition(lambda self: self.claims)
    @rule(which=anyone, settlement=settlements)
    def settle_late(self, which: int, settlement: Settlement) -> None:
        """Anybody who ever had a claim comes back with anything."""
        self._settle(self.claims[-1 - which % len(self.claims)], settlement)

    @precondition(lambda self: any(self.held.values()))
    @rule(which=anyone)
    def crash(self, which: int) -> None:
        self.held[self._held(which)[0]] = []

    @precondition(lambda self: self.claims)
    @rule(which=anyone, report=reports, is_ours=st.sampled_from([True, True, True, False]))
    def report(self, which: int, report: ReplyReport, is_ours: bool) -> None:
        """A platform says something of a reply that was or was not sent, of a turn that is open, over or gone."""
        turn_id, now = self.claims[-1 - which % len(self.claims)].turn.id, self.clock.now()
        made = replace(report, at=now)
        key = self.ask(lambda store: store.letters.report(turn_id, made, lambda key: is_ours))
        if key is not None:
            assert is_ours, "a report of somebody else's is not believed"
            self.ledger.reported(turn_id, made, now)

    @precondition(lambda self: self.ledger.letters)
    @rule(which=anyone, is_retry=st.booleans())
    def end_letter(self, which: int, is_retry: bool) -> None:
        letter_id = sorted(self.ledger.letters)[which % len(self.ledger.letters)]
        if is_retry:
            conversation = self.ask(lambda store: store.letters.retry(letter_id))
            assert conversation is not None
            self.ledger.retried(letter_id, conversation)
        else:
            assert self.ask(lambda store: store.letters.discard(letter_id))
            del self.ledger.letters[letter_id]
        assert self.ask(lambda store: store.letters.retry(letter_id)) is None
        assert not self.ask(lambda store: store.letters.discard(letter_id))

    @rule(age_ms=st.sampled_from([0, 0, 1_000, 3_600_000]), ids_age_ms=st.sampled_from([0, 0, 3_600_000, 7_200_000]))
    def forget(self, age_ms: int, ids_age_ms: int) -> None:
        """Nothing that ended at this very moment: a conversation never begins anew at the time it began before."""
        at_once(self.clock.advance(1))
        before, ids_before = self.clock.now() - age_ms, self.clock.now() - ids_age_ms
        self.ask(lambda store: store.history.forget(before, ids_before))
        self.ledger.forget(before, ids_before)

    @rule(
        who=st.sampled_from(KEYS),
        age_ms=st.sampled_from([0, 0, 1_000, 3_600_000]),
        ids_age_ms=st.sampled_from([0, 0, 3_600_000, 7_200_000]),
    )
    def forget_chosen(self, who: ConversationKey, age_ms: int, ids_age_ms: int) -> None:
        """The turns of one conversation, which is kept for a shorter time than the others."""
        at_once(self.clock.advance(1))
        before, ids_before = self.clock.now() - age_ms, self.clock.now() - ids_age_ms
        start = ClosedPoint()
        self.ask(lambda store: store.history.forget_chosen(lambda key, _: key == who, start, before, ids_before))
        self.ledger.forget_chosen(who, before, ids_before)

    @rule(age_ms=st.sampled_from([0, 1_000, 3_600_000]))
    def discard_older_letters(self, age_ms: int) -> None:
        before = self.clock.now() - age_ms
        old = [id for id in self.ledger.letters if self.ledger.ended[id][2] < before]
        assert self.ask(lambda store: store.letters.discard_older(before)) == len(old)
        for letter_id in old:
            del self.ledger.letters[letter_id]

    @invariant()
    def nothing_is_lost_or_made_up(self) -> None:
        for key in self.model.conversations:
            found = self.model.find(key)
            assert found is not None
            ranges = self.ledger.sealed_ranges(key)
            sealed = tuple(said for numbers in ranges for said in as_said(self.ledger.among(key, numbers)))
            waiting = self.ledger.waiting(key)
            assert found.messages == sealed + as_said(waiting)
            assert found.conversation.waiting == sum(not message.is_amendment for message in waiting)
        for letter_id, (_, messages) in self.ledger.letters.items():
            letter = self.model.letter(letter_id)
            assert letter is not None
            assert self.model.letters[letter_id].count == sum(not message.is_amendment for message in messages)
            assert letter.messages == in_order(as_said(messages))
        assert self.model.letters.keys() == self.ledger.letters.keys()

    @invariant()
    def a_conversation_is_there_for_as_long_as_anything_of_it(self) -> None:
        there = {key for key in KEYS if self.ledger.is_anything_left(key)}
        interrupted = {self.model.owners[id] for id, c in self.model.closed.items() if c.status == "interrupted"}
        assert there <= self.model.conversations.keys() <= there | interrupted

    @invariant()
    def every_conversation_is_sound(self) -> None:
        for key, conversation in self.model.conversations.items():
            check_state(conversation)
            self._check_numbers(key, conversation)
            self._check_deadline(key, conversation)

    @invariant()
    def at_most_one_claim_holds(self) -> None:
        live = [
            claim.key
            for claim in self.claims
            if holds(self.model.conversations.get(claim.key, Conversation()), claim.epoch, claim.turn.id)
        ]
        assert len(set(live)) == len(live)

    def _held(self, which: int) -> tuple[str, Claim]:
        held = [(worker, claim) for worker, claims in self.held.items() for claim in claims]
        return held[which % len(held)]

    def _settle(self, claim: Claim, settlement: Settlement) -> None:
        if self.ask(lambda store: store.settle(claim, settlement)):
            self.ledger.settled(claim, settlement, self.clock.now())
        else:
            self._see_whether_stale(claim)

    def _see_whether_stale(self, claim: Claim) -> None:
        """A claim that was refused had its turn taken away, if its answer was stale."""
        record = self.ask(lambda store: store.history.turn(claim.turn.id))
        if record is not None and record.closed is not None and self.ledger.holds(claim):
            self.ledger.withdrawn(claim, record.closed, self.clock.now())

    def _check_numbers(self, key: ConversationKey, conversation: Conversation) -> None:
        turn, buffer = conversation.turn, conversation.buffer
        numbers = self.model.messages[key].keys()
        if turn is not None:
            assert set(range(turn.head, turn.tail + 1)) <= numbers
        if buffer is not None:
            assert set(range(buffer.head, conversation.next_seq)) <= numbers
            assert turn is None or turn.tail < buffer.head
        assert max(numbers, default=0) < conversation.next_seq

    def _check_deadline(self, key: ConversationKey, conversation: Conversation) -> None:
        buffer = conversation.buffer
        if buffer is not None and buffer.due.reason != "held":
            assert buffer.due.at <= max(buffer.first_at + self.ledger.max_wait_ms[key], self.clock.now())


class StoreMachine(ModelMachine):
    """The same, with a store beside the model. `opener` is the one thing to write."""

    is_durable = True

    def opener(self, clock: VirtualClock, resources: ExitStack) -> OpenStore:
        """Opens one store, empty at first and the same each time; `resources` ends with this history."""
        raise NotImplementedError

    @initialize()
    def open_first(self) -> None:
        self.resources = ExitStack()
        self.runner = self.resources.enter_context(asyncio.Runner())
        self.open_store = self.opener(self.clock, self.resources)
        self.abandoned: list[AbstractAsyncContextManager[Store]] = []
        self.opened = self.open_store()
        self.store = self.runner.run(enter(self.opened))

    @precondition(lambda self: self.is_durable)
    @rule(is_crash=st.booleans())
    def reopen(self, is_crash: bool) -> None:
        if is_crash:
            self.abandoned.append(self.opened)
        else:
            self.runner.run(leave(self.opened))
        self.opened = self.open_store()
        self.store = self.runner.run(enter(self.opened))

    def ask(self, verb: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        expected = super().ask(verb)
        answer = self.runner.run(verb(self.store))
        assert answer == expected
        return expected

    @rule(state=st.sampled_from(["", "idle", "collecting"]), tenant=st.sampled_from(["", "acme"]))
    def list_conversations(self, state: str, tenant: str) -> None:
        self.ask(lambda store: conversations_by_pages(store, Query(state=state, tenant=tenant, limit=2)))

    @invariant()
    def store_equals_model(self) -> None:
        self.ask(lambda store: everything(store, *KEYS))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            for opened in (*self.abandoned, self.opened):
                self.runner.run(leave(opened))
        if hasattr(self, "resources"):
            self.resources.close()


async def everything(store: Store, *keys: ConversationKey) -> object:
    """All that a store says about some conversations; letters of one moment come in any order."""
    letters = (await store.letters.list(ALL)).items
    instants = [letter.at for letter in letters]
    assert instants == sorted(instants, reverse=True), "the latest letter comes first"
    return (
        await store.next_due(),
        [await store.find(key) for key in keys],
        [await store.history.turns(key, ALL) for key in keys],
        sorted(letters, key=lambda letter: letter.id),
        [await store.letters.get(letter_id) for letter_id in sorted(letter.id for letter in letters)],
    )


async def conversations_by_pages(store: Store, query: Query) -> list[tuple[ConversationKey, Conversation]]:
    """Every conversation that matches, read a page at a time."""
    page = await store.history.conversations(query)
    found = list(page.items)
    while page.cursor:
        assert len(page.items) <= query.limit
        page = await store.history.conversations(
            Query(query.state, query.tenant, query.channel, query.limit, page.cursor)
        )
        found += page.items
    return found


def check_state(conversation: Conversation) -> None:
    """The table at the head of `rules/transitions.py`."""
    turn, buffer = conversation.turn, conversation.buffer
    if turn is not None:
        assert conversation.state == ("replying" if turn.progress.is_final else "answering")
        assert conversation.due_at == turn.due_at
    elif buffer is not None:
        assert conversation.state == "collecting"
        assert conversation.due_at == buffer.due.at
    else:
        assert conversation.state == "idle"
        assert conversation.due_at is None


def unamended(conversation: Conversation | None) -> Conversation | None:
    """All of a conversation that an amendment may not change."""
    if conversation is None or conversation.buffer is None:
        return conversation
    return replace(conversation, next_seq=0, buffer=replace(conversation.buffer, amendments=0, portions=(), size=0))


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The answer of a coroutine that waits for nothing."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as stop:
            answer: T = stop.value
            return answer


async def enter(manager: AbstractAsyncContextManager[Store]) -> Store:
    return await manager.__aenter__()


async def leave(manager: AbstractAsyncContextManager[Store]) -> None:
    await manager.__aexit__(None, None, None)
