"""A message over a limit: beside all others, known, and told of once a minute."""

import pytest

from turntake.rules.arriving import arrive
from turntake.rules.conversation import Aside, Change, Closed, Conversation, Stop
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.over_limit import NOTICE_EVERY_MS, set_aside
from turntake.rules.records import Append, arrived
from turntake.rules.rules import Rules
from turntake.rules.transitions import claim, receive
from turntake.rules.words import NO_CUE, Cue
from turntake.testing.clock import START

ANN = ConversationKey.of("ann")
RULES = Rules(limit_text="Slowly.\n@de Langsam.")
OVER = "bytes_per_minute"
WAITING = receive(Conversation(), RULES, START).conversation
ANSWERED = claim(WAITING, ANN, 60_000, START + 1_000)


def append(message: Message, cue: Cue = NO_CUE) -> Append:
    return Append(ANN, message, RULES, "sales", cue, OVER)


def refused(conversation: Conversation, at: int = START, message: Message | None = None) -> tuple[Change, Closed]:
    change = arrive(conversation, append(message or Message("m", "hi")), at, 100)
    assert isinstance(change, Change)
    assert change.closed is not None
    return change, change.closed


@pytest.mark.parametrize("before", [Conversation(), WAITING, ANSWERED])
def test_it_changes_nothing_else(before: Conversation) -> None:
    """Neither the numbers, nor a deadline, nor the agent, nor the answer under way."""
    (after, _), closed = refused(before, START + 1_500)
    assert after == Conversation(
        before.next_seq, before.epoch, before.buffer, before.turn, before.agent, before.began_at, aside=after.aside
    )
    assert (closed.status, closed.reason, closed.at, closed.turn) == ("rejected", OVER, START + 1_500, None)
    assert (closed.is_aside, closed.count, list(closed.numbers)) == (True, 1, [closed.tail])
    assert closed.head == before.next_seq


def test_each_has_a_number_of_its_own_below_zero_and_they_rise() -> None:
    """However many come in one second, and also if the clock is set back."""
    conversation, numbers, ids = WAITING, [], set()
    for at in (START, START, START, START + 1, START + 5_000, START - 60_000):
        (conversation, _), closed = refused(conversation, at)
        numbers.append(closed.tail)
        ids.add(closed.id)
    assert numbers == sorted(set(numbers))
    assert numbers[-1] < 0
    assert len(ids) == 6


def test_a_count_that_was_lost_begins_above_all_that_came_before() -> None:
    """An earlier release does not know of it, and writes the row without it."""
    (after, _), first = refused(WAITING, START)
    assert after.aside is not None
    _, second = refused(WAITING, START + 1_000)
    assert second.tail > first.tail


@pytest.mark.parametrize(
    ("after_ms", "is_told"),
    [(0, False), (NOTICE_EVERY_MS - 1, False), (NOTICE_EVERY_MS, True), (-1, True)],
)
def test_the_person_is_told_again_after_a_minute(after_ms: int, is_told: bool) -> None:
    """Or if the clock was ahead when they were told."""
    before = refused(WAITING)[0].conversation
    arrival = append(Message("m2", "hi", metadata={"language": "de"}))
    change = arrive(before, arrival, START + after_ms, 100)
    assert isinstance(change, Change)
    assert arrived(arrival, before, change).notice == ("Langsam." if is_told else "")


def test_the_minute_counts_from_the_notice_and_not_from_the_latest_message() -> None:
    """Somebody who never stops is told every minute."""
    conversation, told = WAITING, 0
    for second in range(180):
        at = START + second * 1_000
        before, (conversation, closed) = conversation, set_aside(conversation, ANN, OVER, at)
        told += arrived(append(Message("m")), before, Change(conversation, closed)).notice != ""
    assert told == 3
    assert conversation.aside == Aside(START // 1_000 + 179, START + 120_000)


def test_an_edit_is_set_aside_if_there_is_anything_to_edit() -> None:
    edit = Message("e1", "better", amends="m1")
    assert refused(WAITING, message=edit)[1].reason == OVER
    assert arrive(Conversation(), append(edit), START) is None
    assert arrive(ANSWERED, append(edit), START) is None


def test_a_stop_word_stops_what_can_be_stopped() -> None:
    """Then the stop word itself waits for the agent: the next one takes its place, and once somebody has it, no more of
    them are taken."""
    stop = append(Message("s1", "stop"), Cue("stop"))
    assert isinstance(arrive(WAITING, stop, START), Stop)
    stopped = arrive(ANSWERED, stop, START)
    assert isinstance(stopped, Stop)
    again = arrive(stopped.conversation, stop, START)
    assert isinstance(again, Stop)
    assert len(again.conversation.open_turns) == 1
    taken = claim(again.conversation, ANN, 60_000, START + 1)
    for nothing_to_stop in (Conversation(), taken):
        change = arrive(nothing_to_stop, stop, START + 2)
        assert isinstance(change, Change)
        assert change.closed is not None
        assert change.closed.is_aside
