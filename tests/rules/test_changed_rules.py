"""What waits when its rules change: the deadline is what the new rules say."""

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from turntake.rules.conversation import Buffer, Conversation, Touch
from turntake.rules.deadline import Deadline, Decision
from turntake.rules.key import ConversationKey
from turntake.rules.rules import Rules
from turntake.rules.touching import touch
from turntake.rules.transitions import claim, receive

KEY = ConversationKey.of("ann")
SLOW = Rules(silence_ms=10_000, typing_inference_ms=0)


def said(*times: int, rules: Rules = SLOW) -> Conversation:
    """A conversation to which somebody wrote at these times."""
    conversation = Conversation()
    for at in times:
        conversation = receive(conversation, rules, at).conversation
    return conversation


def told(conversation: Conversation, rules: Rules, now: int) -> Buffer:
    buffer = touch(conversation, KEY, Touch("rules"), rules, now).conversation.buffer
    assert buffer is not None
    return buffer


RULES = st.builds(
    Rules,
    enabled=st.sampled_from([True, True, True, False]),
    silence_ms=st.sampled_from([0, 500, 2_000]),
    typing_inference_ms=st.sampled_from([0, 1_000, 3_000]),
    max_wait_ms=st.sampled_from([3_000, 30_000]),
    min_messages=st.sampled_from([1, 3]),
    max_messages=st.sampled_from([3, 20]),
    window_ms=st.sampled_from([0, 0, 2_500]),
)


@hypothesis.settings(deadline=None)
@given(st.lists(st.integers(0, 4_000), min_size=1, max_size=6), RULES, RULES)
def test_the_deadline_is_as_if_all_had_come_under_the_new_rules(gaps: list[int], old: Rules, new: Rules) -> None:
    """Whatever they were before; what is past is due now."""
    times = [1 + sum(gaps[: end + 1]) for end in range(len(gaps))]
    expected = said(*times, rules=new).buffer
    assert expected is not None
    due = told(said(*times, rules=old), new, times[-1]).due
    assert max(due.at, times[-1]) == max(expected.due.at, times[-1])


def test_the_change_is_among_the_decisions_and_the_reason_is_that_of_the_rule() -> None:
    buffer = told(said(0), Rules(silence_ms=4_000), 1_000)
    assert buffer.due == buffer.due_by_messages == Deadline(4_000, "silence")
    assert buffer.decisions == (Decision(0, 10_000, "silence"), Decision(1_000, 4_000, "rules changed"))


def test_what_would_have_been_due_already_is_due_now() -> None:
    assert told(said(0), Rules(), 5_000).due == Deadline(5_000, "silence")


def test_rules_that_give_the_same_deadline_change_nothing() -> None:
    conversation = said(0, 500)
    assert touch(conversation, KEY, Touch("rules"), SLOW, 1_000).conversation == conversation


def test_messages_in_quick_succession_are_seen_as_such() -> None:
    """The time before the latest message is remembered for that."""
    typing = Rules(silence_ms=1_000, typing_inference_ms=3_000)
    assert told(said(100, 500), typing, 600).due == Deadline(3_500, "typing")
    assert told(said(100, 5_000), typing, 5_100).due == Deadline(6_000, "silence")


def test_a_hold_stays() -> None:
    conversation = touch(said(0), KEY, Touch("hold", 20_000), SLOW, 0).conversation
    buffer = told(conversation, Rules(), 100)
    assert (buffer.due, buffer.due_by_messages) == (Deadline(20_000, "held"), Deadline(1_000, "silence"))


def test_somebody_who_is_seen_typing_is_still_waited_for() -> None:
    """But no longer than the new rules allow."""
    conversation = touch(said(0), KEY, Touch("composing", 15_000), SLOW, 0).conversation
    assert told(conversation, Rules(), 100).due == Deadline(15_000, "activity")
    assert told(conversation, Rules(max_wait_ms=7_000), 100).due == Deadline(7_000, "max wait")


def test_what_was_ordered_to_go_goes() -> None:
    conversation = touch(said(0), KEY, Touch("flush"), SLOW, 100).conversation
    assert told(conversation, Rules(silence_ms=20_000), 200).due == Deadline(100, "flushed")


def test_switched_off_all_go_at_once_one_by_one() -> None:
    conversation = touch(said(0, 100), KEY, Touch("rules"), Rules(enabled=False), 200).conversation
    assert conversation.due_at == 200
    turn = claim(conversation, KEY, 1_000, 200).turn
    assert turn is not None
    assert (turn.head, turn.tail) == (1, 1)


@pytest.mark.parametrize("rules", [Rules(), Rules(silence_ms=0)])
def test_what_is_due_already_and_waits_for_the_turn_under_way_stays_due(rules: Rules) -> None:
    """Each round would move it a little and note that."""
    busy = claim(said(0, rules=Rules(silence_ms=0)), KEY, 60_000, 0)
    conversation = receive(busy, Rules(silence_ms=0), 1_000).conversation
    assert touch(conversation, KEY, Touch("rules"), rules, 9_000).conversation == conversation


def test_what_is_too_much_for_one_turn_is_due_as_before() -> None:
    full = said(0, 0, 0, rules=replace(SLOW, capacity=2))
    assert full.buffer is not None
    assert told(full, SLOW, 10).due == full.buffer.due


def test_a_buffer_that_is_full_by_the_new_rules_goes_though_it_is_held() -> None:
    """As it would have when its last message came."""
    conversation = touch(said(0, 100), KEY, Touch("hold", 20_000), SLOW, 100).conversation
    assert told(conversation, Rules(capacity=2), 200).due == Deadline(200, "capacity")
