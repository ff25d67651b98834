"""What a cue does to the deadline, and what a stop word does to a conversation."""

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turntake.rules.arriving import arrive, stop
from turntake.rules.conversation import Answered, Buffer, Change, Conversation, Progress, Retry, Stop, Touch
from turntake.rules.deadline import Deadline, after_message
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, Claim
from turntake.rules.retried_letters import resume
from turntake.rules.rules import Rules
from turntake.rules.touching import touch
from turntake.rules.transitions import claim, receive, settle
from turntake.rules.words import Cue

KEY = ConversationKey.of("ann")
PLAIN = Rules()


@pytest.mark.parametrize(
    ("rules", "cue", "count", "expected"),
    [
        pytest.param(PLAIN, "flush", 1, Deadline(10_000, "flush word"), id="flush ends the wait"),
        pytest.param(Rules(min_messages=3), "flush", 1, Deadline(10_000, "flush word"), id="whatever it waits for"),
        pytest.param(Rules(window_ms=9_000), "flush", 1, Deadline(10_000, "flush word"), id="also in a window"),
        pytest.param(PLAIN, "hold", 1, Deadline(25_000, "hold word"), id="hold lengthens it"),
        pytest.param(Rules(hold_word_ms=500), "hold", 1, Deadline(11_000, "silence"), id="and never shortens it"),
        pytest.param(Rules(max_wait_ms=5_000), "hold", 1, Deadline(14_000, "max wait"), id="up to max wait"),
        pytest.param(Rules(window_ms=9_000), "hold", 1, Deadline(18_000, "window"), id="a window stays as it is"),
        pytest.param(Rules(min_messages=3), "hold", 1, Deadline(39_000, "waiting for more"), id="more is waited for"),
        pytest.param(Rules(max_messages=2), "hold", 2, Deadline(10_000, "max messages"), id="unless it is full"),
        pytest.param(Rules(enabled=False), "hold", 1, Deadline(10_000, "off switch"), id="or switched off"),
        pytest.param(PLAIN, "cut", 1, Deadline(15_000, "cut text"), id="the rest of a text is waited for"),
        pytest.param(Rules(cut_text_ms=0), "cut", 1, Deadline(11_000, "silence"), id="unless that is switched off"),
        pytest.param(PLAIN, "unheard of", 1, Deadline(25_000, "hold word"), id="a later release's: rather wait"),
    ],
)
def test_what_a_cue_does_to_the_deadline(rules: Rules, cue: str, count: int, expected: Deadline) -> None:
    assert after_message(rules, count, 9_000, None, 10_000, cue) == expected


rules = st.builds(
    Rules,
    silence_ms=st.sampled_from([0, 500, 2_000]),
    typing_inference_ms=st.sampled_from([0, 3_000]),
    max_wait_ms=st.sampled_from([3_000, 30_000]),
    min_messages=st.sampled_from([1, 3]),
    window_ms=st.sampled_from([0, 0, 2_500]),
    hold_word_ms=st.integers(0, 60_000),
    cut_text_ms=st.integers(0, 60_000),
)


@hypothesis.settings(deadline=None)
@given(rules, st.integers(1, 5), st.integers(0, 20_000), st.integers(0, 5_000))
def test_a_flush_ends_the_wait_a_hold_only_lengthens_it_and_max_wait_ends_all(
    rules: Rules, count: int, first_at: int, gap_ms: int
) -> None:
    now, previous_at = first_at + gap_ms, first_at if count > 1 else None
    by = {cue: after_message(rules, count, first_at, previous_at, now, cue) for cue in ("", "flush", "hold", "cut")}
    assert by["flush"].at == now
    for cue in ("hold", "cut"):
        assert by[""].at <= by[cue].at <= max(by[""].at, first_at + rules.max_wait_ms)


def arrived(conversation: Conversation, id: str, now: int, cue: str = "", agent: str = "") -> Conversation:
    arrival = Append(KEY, Message(id), PLAIN, agent, Cue(cue))  # type: ignore[arg-type]
    change = arrive(conversation, arrival, now, 10)
    assert change is not None
    return change.conversation


def stopped(conversation: Conversation, now: int) -> Stop:
    change = arrive(conversation, Append(KEY, Message("stop"), PLAIN, cue=Cue("stop")), now, 10)
    assert isinstance(change, Stop)
    return change


def test_a_hold_word_counts_until_the_next_message() -> None:
    conversation = arrived(arrived(Conversation(), "m1", 0, "hold"), "m2", 5_000)
    assert conversation.due_at == 6_000


def test_an_operators_hold_outlasts_a_flush_word() -> None:
    held = touch(arrived(Conversation(), "m1", 0), KEY, Touch("hold", 60_000), PLAIN, 0).conversation
    buffer = arrived(held, "m2", 100, "flush").buffer
    assert buffer is not None
    assert (buffer.due, buffer.due_by_messages.reason) == (Deadline(60_000, "held"), "flush word")


def test_a_change_of_rules_keeps_what_was_asked_for() -> None:
    conversation = arrived(Conversation(), "m1", 0, "hold")
    buffer = touch(conversation, KEY, Touch("rules"), Rules(hold_word_ms=20_000), 1_000).conversation.buffer
    assert isinstance(buffer, Buffer)
    assert buffer.due == Deadline(20_000, "hold word")


def test_a_stop_word_keeps_the_agent_that_its_conversation_has() -> None:
    sales = arrived(Conversation(), "m1", 0, agent="sales")
    change = stopped(sales, 10)
    assert (change.turn.agent, change.conversation.agent) == ("sales", "sales")
    assert (change.turn.size, change.turn.decisions[0].reason) == (10, "stop word")


def test_a_stop_word_may_name_the_agent() -> None:
    assert arrived(arrived(Conversation(), "m1", 0), "m2", 0, "stop", "sales").agent == "sales"


def test_the_first_message_of_a_conversation_may_be_a_stop_word() -> None:
    change = stopped(Conversation(), 500)
    assert (change.conversation.began_at, change.conversation.next_seq, change.ended) == (500, 2, ())
    assert claim(change.conversation, KEY, 1_000, 500).turn is not None


def test_all_portions_of_a_flood_are_stopped_as_one() -> None:
    small = Rules(capacity=2)
    conversation = Conversation()
    for _ in range(5):
        conversation = receive(conversation, small, 0, size=7).conversation
    (ended,) = stopped(conversation, 1).ended
    assert (ended.head, ended.tail, ended.count, ended.size) == (1, 5, 5, 35)


def test_a_retry_that_waits_is_stopped_too() -> None:
    taken = claim(arrived(Conversation(), "m1", 0), KEY, 1_000, 1_000)
    assert taken.turn is not None
    handed_back = settle(taken, Claim(KEY, taken.epoch, taken.turn, ()), Retry(60_000), 2_000)
    assert handed_back is not None
    change = stopped(handed_back.conversation, 5_000)
    assert [(ended.id, ended.epoch) for ended in change.ended] == [(taken.turn.id, taken.epoch + 1)]
    assert change.conversation.turn == change.turn


def test_a_stop_word_goes_before_a_letter_that_is_sent_again() -> None:
    taken = claim(arrived(Conversation(), "m1", 0), KEY, 1_000, 1_000)
    assert taken.turn is not None
    done = settle(taken, Claim(KEY, taken.epoch, taken.turn, ()), _answered(), 1_000)
    assert isinstance(done, Change)
    assert done.closed is not None
    busy = claim(arrived(done.conversation, "m2", 2_000), KEY, 1_000, 4_000)
    waiting = resume(busy, done.closed, 4_000)
    change = stopped(waiting, 4_100)
    assert change.conversation.turn == change.turn
    assert [turn.id for turn in change.conversation.resumed] == [done.closed.id]
    assert not [ended for ended in change.ended if ended.id == done.closed.id], "an answer that only leaves, leaves"


def test_a_stop_word_that_was_answered_before_anybody_took_it_is_over() -> None:
    """As through the API; a second one does not take that answer back."""
    first = stopped(Conversation(), 0)
    unclaimed = Claim(KEY, first.conversation.epoch, first.turn, ())
    completed = settle(first.conversation, unclaimed, Retry(0, progress=Progress(("ok",), 0, True)), 5)
    assert completed is not None
    second = stopped(completed.conversation, 10)
    assert second.ended == ()
    assert second.conversation.turn == completed.conversation.turn
    assert second.conversation.resumed == (second.turn,)


def test_ten_thousand_stop_words_leave_one() -> None:
    conversation = stopped(Conversation(), 0).conversation
    for _ in range(10_000):
        conversation = stop(conversation, KEY, 1).conversation
    assert (conversation.resumed, conversation.next_seq) == ((), 10_002)


def _answered() -> Answered:
    return Answered(("hello",))
