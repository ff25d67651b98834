"""The state machine, a step a test; what holds over whole histories is in test_properties.py."""

from typing import Literal

import pytest
from msgspec.structs import replace

from turntake.rules.buffer import DECISIONS_KEPT, arrival_at
from turntake.rules.conversation import Answered, Dead, Lease, Progress, Retry, Touch
from turntake.rules.deadline import Deadline, Decision
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.model import Model
from turntake.rules.records import Append, Appended, Claim
from turntake.rules.rules import Rules
from turntake.rules.transitions import PROMISE_BROKEN, WORKER_STOPPED, amend, set_back, turn_id

LEASE_MS = 60_000
KEY = ConversationKey.of("ann")
PLAIN = Rules()
INTERRUPT = Rules(on_busy="interrupt")
OFF = Rules(enabled=False)


def send(model: Model, message_id: str, rules: Rules = PLAIN, now: int = 0) -> None:
    model.append([Append(KEY, Message(message_id, message_id), rules)], now)


def ids(model: Model) -> list[str]:
    found = model.find(KEY)
    return [message.id for message in found.messages] if found else []


def test_messages_cleared_during_an_answer_are_no_longer_shown_as_waiting() -> None:
    """A letter's messages are the letter's, also while an older turn is still open."""
    model = Model()
    send(model, "m1", OFF)
    model.claim(1, 60_000, 0)
    send(model, "m2")
    model.touch(KEY, Touch("clear"), PLAIN, 0)
    send(model, "m3")
    assert ids(model) == ["m1", "m3"]


def test_an_interruption_never_brings_cleared_messages_back() -> None:
    """After messages behind the sealed ones were cleared, a new one waits for the next turn instead of merging."""
    model = Model()
    send(model, "m1", OFF)
    model.claim(1, 60_000, 0)
    send(model, "m2")
    model.touch(KEY, Touch("clear"), PLAIN, 0)
    send(model, "m3", INTERRUPT)
    conversation = model.conversations[KEY]
    assert conversation.turn is not None
    assert conversation.waiting == 1
    assert ids(model) == ["m1", "m3"]


def test_what_an_interruption_merged_stays_merged_when_switched_off() -> None:
    """The same message sealed alone a second time would repeat its turn's id with attempt 1."""
    model = Model()
    send(model, "m1", OFF)
    (first,) = model.claim(1, 60_000, 0)
    send(model, "m2", INTERRUPT)
    send(model, "m3", OFF)
    (second,) = model.claim(1, 60_000, 0)
    assert second.turn.id != first.turn.id
    assert [message.id for message in second.messages] == ["m1", "m2", "m3"]


def claimed(*message_ids: str, rules: Rules = PLAIN) -> tuple[Model, Claim]:
    """A model whose one turn was claimed at its deadline."""
    model = Model()
    for message_id in message_ids:
        send(model, message_id, rules)
    (claim,) = model.claim(1, LEASE_MS, model.next_due() or 0)
    return model, claim


def test_an_idle_conversation_has_no_deadline() -> None:
    """Nothing waits and nothing is sealed."""
    model, claim = claimed("m1")
    model.settle(claim, Answered(), 5)
    conversation = model.conversations[KEY]
    assert (conversation.state, conversation.due_at, conversation.waiting) == ("idle", None, 0)


def test_the_turn_id_comes_from_the_key_and_the_range() -> None:
    """Two turns of one conversation differ, and so do the same numbers in two conversations."""
    ids = {turn_id(key, *range_) for key in (KEY, ConversationKey.of("bob")) for range_ in ((1, 1), (1, 2), (2, 2))}
    assert len(ids) == 6
    assert turn_id(KEY, 1, 2) == turn_id(ConversationKey.of("ann"), 1, 2)


def test_a_claim_knows_when_its_person_began() -> None:
    """The time to live counts from the first arrival, whatever the order of the messages."""
    model = Model()
    send(model, "m1", now=7)
    send(model, "m2", now=9)
    (claim,) = model.claim(1, LEASE_MS, 60_000)
    assert claim.first_at == 7


@pytest.mark.parametrize(
    ("lease", "lapses", "failures", "error"),
    [("", 1, 0, ""), ("alone", 1, 1, WORKER_STOPPED), ("promised", 0, 1, PROMISE_BROKEN)],
)
def test_what_the_end_of_a_lease_counts_as(lease: Lease, lapses: int, failures: int, error: str) -> None:
    """Whoever held it said nothing more: that may be its own fault, or that of a turn beside it, or the agent's."""
    model, claim = claimed("m1")
    assert model.extend([claim], LEASE_MS, 5_000, lease) == [True]
    (again,) = model.claim(1, LEASE_MS, 5_000 + LEASE_MS)
    turn = again.turn
    assert (turn.attempt, turn.lapses, turn.failures, turn.error, turn.lease) == (2, lapses, failures, error, "")
    assert again.epoch > claim.epoch


def test_a_turn_that_was_handed_to_nobody_is_no_attempt() -> None:
    """It keeps its number; what it went through before stays with it."""
    model, claim = claimed("m1")
    assert model.settle(claim, Retry(1_000, is_failure=False, is_tried=False), 5_000)
    (again,) = model.claim(1, LEASE_MS, 6_000)
    assert (again.turn.attempt, again.turn.failures, again.turn.lapses) == (1, 0, 0)


def test_a_turn_that_was_handed_back_can_be_brought_forward_and_not_put_off() -> None:
    """By whoever handed it back, for as long as nobody took it."""
    model, claim = claimed("m1")
    assert model.settle(claim, Retry(60_000, is_failure=False), 5_000)
    assert model.settle(claim, Retry(90_000, is_failure=False), 6_000)
    assert model.next_due() == 65_000
    assert model.settle(claim, Retry(100, is_failure=False), 6_000)
    assert model.next_due() == 6_100
    model.claim(1, LEASE_MS, 6_100)
    assert not model.settle(claim, Retry(0, is_failure=False), 6_200)


def test_saving_renews_the_lease_and_never_shortens_it() -> None:
    """Whoever saves is about to send: nobody takes over in between, although the lease was nearly over."""
    model, claim = claimed("m1")
    late = claim.turn.due_at + 1
    assert model.save(claim, Progress(("hello",), is_final=True), LEASE_MS, late)
    assert model.claim(1, LEASE_MS, late + LEASE_MS - 1) == []
    assert model.save(claim, Progress(("hello",), is_final=True), 1, late)
    assert model.next_due() == late + LEASE_MS


def test_what_was_handed_back_is_not_saved_any_more() -> None:
    """Nobody renews a lease that was given up, and nothing may leave under it."""
    model, claim = claimed("m1")
    assert model.settle(claim, Retry(0, is_failure=False), 5_000)
    assert not model.save(claim, Progress(("hello",), is_final=True), LEASE_MS, 5_001)


def test_a_retry_that_was_asked_for_counts_its_failure_once() -> None:
    """Settling counted it, so claiming again does not."""
    model, claim = claimed("m1")
    model.settle(claim, Retry(0, error="boom"), 5_000)
    (again,) = model.claim(1, LEASE_MS, 5_000)
    assert (again.turn.attempt, again.turn.failures, again.turn.error) == (2, 1, "boom")
    assert again.turn.waits == 0, "unless it says so, nobody was away"


def test_the_latest_error_is_kept() -> None:
    """A retry or a death without an error of its own leaves the one before."""
    model, claim = claimed("m1")
    model.settle(claim, Retry(0, error="boom"), 5_000)
    (again,) = model.claim(1, LEASE_MS, 5_000)
    model.settle(again, Dead("gave up"), 5_000)
    letter = model.letter(claim.turn.id)
    assert letter is not None
    assert letter.error == "boom"


def test_an_answer_without_replies_closes_with_the_saved_ones() -> None:
    """The history shows what the person read."""
    model, claim = claimed("m1")
    model.save(claim, Progress(("one", "two"), 1, True))
    model.settle(claim, Answered(), 5_000)
    closed = model.closed[claim.turn.id].turn
    assert closed is not None
    assert closed.progress == Progress(("one", "two"), 2, True)


@pytest.mark.parametrize(
    ("rules", "is_committed", "is_interrupted"),
    [
        pytest.param(INTERRUPT, False, True, id="interrupt"),
        pytest.param(INTERRUPT, True, False, id="after commit"),
        pytest.param(PLAIN, False, False, id="queue"),
        pytest.param(Rules(on_busy="interrupt", max_interrupts=0), False, False, id="no interruptions left"),
        pytest.param(Rules(on_busy="interrupt", enabled=False), False, False, id="switched off"),
    ],
)
def test_when_a_message_interrupts(rules: Rules, is_committed: bool, is_interrupted: bool) -> None:
    """Only where the rules of that message allow it and the point of no return is ahead."""
    model, claim = claimed("m1")
    if is_committed:
        model.save(claim, Progress())
    (answer,) = model.append([Append(KEY, Message("m2"), rules)], 5_000)
    assert answer.interrupted == (claim.turn.id if is_interrupted else None)
    assert model.extend([claim], LEASE_MS, 5_000) == [not is_interrupted]


def test_a_turn_is_interrupted_so_often_and_no_more() -> None:
    """Somebody who never stops writing gets an answer after all."""
    model, rules = Model(), Rules(on_busy="interrupt", max_interrupts=2)
    interrupted = []
    for number in range(4):
        (answer,) = model.append([Append(KEY, Message(f"m{number}"), rules)], 0)
        interrupted.append(answer.interrupted is not None)
        model.claim(1, LEASE_MS, 60_000)
    assert interrupted == [False, True, True, False]


def test_an_interruption_takes_in_what_had_queued_behind_the_turn() -> None:
    """Silence and max wait start anew, and the decisions of both buffers are kept."""
    model, _ = claimed("m1")
    send(model, "m2", now=5_000)
    send(model, "m3", INTERRUPT, now=9_000)
    buffer = model.conversations[KEY].buffer
    assert buffer is not None
    assert ids(model) == ["m1", "m2", "m3"]
    assert (buffer.first_at, buffer.due) == (9_000, Deadline(10_000, "silence"))
    assert [decision.at for decision in buffer.decisions] == [0, 5_000, 9_000]


def test_a_retry_that_waits_can_be_interrupted() -> None:
    """The person wrote more before the agent was asked again: it is asked once, about everything."""
    model, claim = claimed("m1")
    model.settle(claim, Retry(60_000), 5_000)
    send(model, "m2", INTERRUPT, now=6_000)
    assert model.next_due() == 7_000
    assert ids(model) == ["m1", "m2"]


@pytest.mark.parametrize("kind", ["composing", "stopped", "flush", "hold", "clear", "rules"])
def test_an_order_to_an_idle_conversation_changes_nothing(kind: Literal["flush"]) -> None:
    """There is nothing to move."""
    model, claim = claimed("m1")
    model.settle(claim, Answered(), 5)
    before = model.conversations[KEY]
    assert model.touch(KEY, Touch(kind, 1_000), PLAIN, 6) == before
    assert not model.letters


def test_composing_uses_the_rules_pause_unless_it_names_its_own() -> None:
    """`activity_ms` is the default length of a sign."""
    model = Model()
    send(model, "m1")
    model.touch(KEY, Touch("composing"), PLAIN, 0)
    assert model.next_due() == 5_000
    model.touch(KEY, Touch("composing", 7_000), PLAIN, 0)
    assert model.next_due() == 7_000


def test_a_hold_outlasts_max_wait_and_ends_at_capacity() -> None:
    """Somebody ordered it, so only a full buffer overrides it."""
    model = Model()
    rules = Rules(capacity=3)
    send(model, "m1", rules)
    model.touch(KEY, Touch("hold", 90_000), rules, 0)
    send(model, "m2", rules, now=1_000)
    assert model.conversations[KEY].due_at == 90_000
    send(model, "m3", rules, now=2_000)
    assert model.conversations[KEY].due_at == 2_000


def test_flush_makes_a_waiting_retry_due_and_leaves_a_running_claim_alone() -> None:
    """An operator cannot take a turn away from its worker."""
    model, claim = claimed("m1")
    model.touch(KEY, Touch("flush"), PLAIN, 5_000)
    assert model.next_due() == claim.turn.due_at
    model.settle(claim, Retry(60_000), 5_000)
    model.touch(KEY, Touch("flush"), PLAIN, 6_000)
    assert model.next_due() == 6_000


def test_a_retried_letter_joins_what_waits_and_ends_a_hold() -> None:
    """Somebody asked for it now."""
    model, claim = claimed("m1")
    model.settle(claim, Dead("gave up"), 5_000)
    send(model, "m2", now=5_000)
    model.touch(KEY, Touch("hold", 90_000), PLAIN, 5_000)
    conversation = model.retry_letter(claim.turn.id, 6_000)
    assert conversation is not None
    assert conversation.buffer is not None
    assert (conversation.buffer.due, conversation.waiting) == (Deadline(6_000, "retried"), 2)
    (again,) = model.claim(1, LEASE_MS, 6_000)
    assert [message.id for message in again.messages] == ["m1", "m2"]


def test_no_claim_from_before_it_was_a_letter_holds_a_turn_that_is_sent_again() -> None:
    """Neither the one that gave it up nor one before it: two claims of one millisecond have epochs side by side."""
    model, first = claimed("m1")
    assert model.save(first, Progress(("hello",), is_final=True))
    assert model.settle(first, Retry(0), 1_000)
    (second,) = model.claim(1, LEASE_MS, 1_000)
    assert second.epoch == first.epoch + 1
    assert model.settle(second, Dead("gave up"), 1_000)
    assert model.retry_letter(second.turn.id, 1_000) is not None
    for claim in (first, second):
        assert not model.settle(claim, Answered(), 1_000)


def test_a_hold_is_set_back_with_the_time() -> None:
    """It ends as much earlier as every other deadline; a message that comes meanwhile still waits for its end."""
    model = Model()
    send(model, "m1", now=10_000)
    model.touch(KEY, Touch("hold", 90_000), PLAIN, 10_000)
    model.conversations[KEY] = set_back(model.conversations[KEY], 9_000)
    send(model, "m2", now=1_500)
    assert model.conversations[KEY].due_at == 91_000


def test_decisions_tell_why_it_waited() -> None:
    """Each change of the deadline is noted; a run of signs keeps only its latest note."""
    model = Model()
    send(model, "m1")
    for now in (100, 200, 300):
        model.touch(KEY, Touch("composing"), PLAIN, now)
    send(model, "m2", now=400)
    (claim,) = model.claim(1, LEASE_MS, 60_000)
    assert claim.turn.decisions == (
        Decision(0, 1_000, "silence"),
        Decision(300, 5_300, "activity"),
        Decision(400, 3_400, "typing"),
    )


def test_decisions_are_bounded() -> None:
    """A person who never stops does not make the record grow for ever."""
    model = Model()
    rules = Rules(max_messages=1_000, capacity=1_000)
    for number in range(DECISIONS_KEPT + 20):
        send(model, f"m{number}", rules, now=number)
    buffer = model.conversations[KEY].buffer
    assert buffer is not None
    assert len(buffer.decisions) == DECISIONS_KEPT
    assert buffer.decisions[-1].at == DECISIONS_KEPT + 19


def test_switched_off_the_rest_keeps_its_place() -> None:
    """Sealing one message of several leaves the others waiting, due at once."""
    model = Model()
    for message_id in ("m1", "m2", "m3"):
        send(model, message_id, OFF)
    (claim,) = model.claim(5, LEASE_MS, 0)
    conversation = model.conversations[KEY]
    assert [message.id for message in claim.messages] == ["m1"]
    assert conversation.waiting == 2
    model.settle(claim, Answered(), 0)
    assert model.next_due() == 0


def test_the_first_final_answer_stands() -> None:
    """A worker that answers twice cannot replace what may already have left; the same answer again is no second one."""
    model, claim = claimed("m1")
    final = Progress(("one",), 0, True)
    assert model.save(claim, Progress(("draft",), 0, False))
    assert model.save(claim, final)
    assert model.save(claim, Progress(("one",), 1, True))
    assert not model.save(claim, Progress(("two",), 0, True))
    assert not model.settle(claim, Answered(("two",)), 0)
    assert model.settle(claim, Answered(("one",)), 0)


def test_a_dead_turn_is_confirmed_dead_and_nothing_else() -> None:
    """Dead letters are settled once, too."""
    model, claim = claimed("m1")
    assert model.settle(claim, Dead("gave up"), 0)
    assert model.settle(claim, Dead("gave up"), 0)
    assert not model.settle(claim, Answered(), 0)


def test_a_settlement_counts_as_repeated_only_by_its_own_claim_and_kind() -> None:
    """A stale worker's answer is not mistaken for the one that stands."""
    model, stale = claimed("m1")
    (fresh,) = model.claim(1, LEASE_MS, stale.turn.due_at)
    assert model.settle(fresh, Answered(("hello",)), 0)
    assert model.settle(fresh, Answered(("hello",)), 0)
    assert model.settle(fresh, Answered(), 0)
    assert not model.settle(fresh, Answered(("other",)), 0)
    assert not model.settle(fresh, Dead("no"), 0)
    assert not model.settle(fresh, Retry(0), 0)
    assert not model.settle(stale, Answered(), 0)


def amended(model: Model, *ids: str, rules: Rules = PLAIN, now: int = 0) -> list[Appended]:
    arrivals = [Append(KEY, Message(f"a{n}-{id}", "better", amends=id), rules, "sales") for n, id in enumerate(ids)]
    return model.append(arrivals, now)


def test_an_amendment_moves_nothing_but_the_next_number() -> None:
    """Not the deadline, its reason, its decisions, the pace, the agent, or how many wait."""
    model = Model()
    send(model, "m1")
    before = model.conversations[KEY]
    (answer,) = amended(model, "m1", now=900)
    after = model.conversations[KEY]
    assert before.buffer is not None
    assert after.buffer is not None
    assert after == replace(before, next_seq=3, buffer=replace(before.buffer, amendments=1, size=after.buffer.size))
    assert (answer.status, answer.waiting, answer.due_at, answer.seq) == ("buffered", 1, 1_000, 2)
    send(model, "m2", Rules(typing_inference_ms=950), now=950)
    assert model.conversations[KEY].due_at == 1_950


def test_amendments_fill_no_buffer_and_no_minimum() -> None:
    """Only messages count."""
    model = Model()
    rules = Rules(min_messages=2, max_messages=3, capacity=3)
    send(model, "m1", rules)
    amended(model, "m1", "m1", "m1", rules=rules)
    assert model.conversations[KEY].buffer is not None
    assert model.conversations[KEY].due_at == 30_000
    send(model, "m2", rules, now=5_000)
    assert model.conversations[KEY].due_at == 6_000


def test_an_amendment_never_interrupts_but_goes_with_a_message_that_does() -> None:
    """Merged with the turn it is of, it changes it after all."""
    model, claim = claimed("m1")
    send(model, "m2", now=5_000)
    (answer,) = amended(model, "m1", rules=INTERRUPT, now=5_000)
    assert (answer.status, answer.interrupted, answer.state) == ("buffered", None, "answering")
    assert [message.text for message in claim.messages] == ["m1"]
    (last,) = model.append([Append(KEY, Message("m3", "m3"), INTERRUPT)], 6_000)
    assert (last.interrupted, last.waiting) == (claim.turn.id, 3)
    found = model.find(KEY)
    assert found is not None
    assert [message.text for message in found.messages] == ["better", "m2", "m3"]


@pytest.mark.parametrize("is_sealed", [True, False])
def test_an_amendment_alone_is_no_turn(is_sealed: bool) -> None:
    """With nothing buffered it is left out, whether a turn is sealed or not."""
    model, claim = claimed("m1")
    if not is_sealed:
        model.settle(claim, Answered(), 5_000)
    before = model.conversations[KEY]
    (answer,) = amended(model, "m1", now=5_000)
    assert (answer.status, answer.seq) == ("ignored", 0)
    assert model.conversations[KEY] == before
    assert amend(before, Rules()) is None


def test_a_message_never_arrives_before_the_one_it_follows() -> None:
    """Whoever receives it may have a clock that is behind, also while the one before is being answered."""
    model = Model()
    send(model, "m1", OFF, now=1_000)
    assert arrival_at(model.conversations[KEY], 400) == 1_000
    (claim,) = model.claim(1, LEASE_MS, 1_000)
    assert arrival_at(model.conversations[KEY], 400) == 1_000
    assert arrival_at(model.conversations[KEY], 1_001) == 1_001
    model.settle(claim, Answered(), 1_002)
    assert arrival_at(model.conversations[KEY], 400) == 400, "nothing waits that it could come before"


@pytest.mark.parametrize("kind", ["composing", "stopped"])
def test_what_was_ordered_to_go_is_not_delayed_by_somebody_who_types(kind: Literal["composing", "stopped"]) -> None:
    """An order to hold still counts: it came last."""
    model = Model()
    send(model, "m1")
    model.touch(KEY, Touch("flush"), PLAIN, 100)
    model.touch(KEY, Touch(kind, 5_000), PLAIN, 200)
    assert model.conversations[KEY].due_at == 100
    model.touch(KEY, Touch("hold", 9_000), PLAIN, 300)
    assert model.conversations[KEY].due_at == 9_300


def test_what_comes_after_an_order_to_go_goes_along() -> None:
    model = Model()
    send(model, "m1")
    model.touch(KEY, Touch("flush"), PLAIN, 100)
    model.append([Append(KEY, Message("m2", "hi"), PLAIN)], 200)
    assert model.conversations[KEY].due_at == 100


def test_messages_keep_their_order_while_a_clock_is_behind() -> None:
    """Each of them, and not only the first one after it was set back."""
    model = Model()
    for message_id, now in (("m1", 1_000), ("m2", 400), ("m3", 500)):
        send(model, message_id, now=now)
    found = model.find(KEY)
    assert found is not None
    assert [message.received_at for message in found.messages] == [1_000, 1_000, 1_000]


@pytest.mark.parametrize(("first", "then", "first_turn"), [(PLAIN, OFF, ["m1"]), (OFF, PLAIN, ["m1", "m2"])])
def test_whether_messages_go_together_is_for_the_rules_of_the_latest(
    first: Rules, then: Rules, first_turn: list[str]
) -> None:
    """Switched off or on while something waits, that goes by the new rules too."""
    model = Model()
    send(model, "m1", first)
    send(model, "m2", then)
    (claim,) = model.claim(1, LEASE_MS, 60_000)
    assert [message.id for message in claim.messages] == first_turn
