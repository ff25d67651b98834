"""Messages that come during an answer: what the turn under way absorbs, and what becomes of it."""

from turntake.rules.busy import interrupted, noted_stale, with_absorbed
from turntake.rules.conversation import Conversation, SealedTurn, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.rules import Rules
from turntake.rules.touching import touch
from turntake.rules.transitions import amend, claim, receive
from turntake.testing.clock import START

ANN = ConversationKey.of("ann")
STEER = Rules(on_busy="steer", capacity=2, max_turn_bytes=1_000)
ANSWERED = claim(receive(Conversation(), Rules(), START, size=100).conversation, ANN, 60_000, START + 1_000)
LATER = START + 2_000


def absorbed(conversation: Conversation, rules: Rules = STEER) -> SealedTurn:
    turn = with_absorbed(conversation, rules, LATER).turn
    assert turn is not None
    return turn


def test_a_turn_ends_with_the_last_message_that_it_absorbed() -> None:
    """And still knows with which it was handed over."""
    turn = absorbed(receive(ANSWERED, STEER, LATER).conversation)
    assert (turn.head, turn.tail, turn.first_tail, turn.last_at) == (1, 2, 1, LATER)


def test_an_edit_takes_no_room_in_the_turn_that_absorbs_it() -> None:
    edited = amend(receive(ANSWERED, STEER, LATER).conversation, STEER)
    assert edited is not None
    turn = absorbed(edited)
    assert (turn.tail, turn.amendments) == (3, 1)
    assert absorbed(receive(edited, STEER, LATER).conversation).tail == 1, "a third message is one too many"


def test_a_turn_absorbs_one_portion_and_the_edits_in_it() -> None:
    waiting = receive(receive(ANSWERED, STEER, LATER, size=800).conversation, STEER, LATER, size=900).conversation
    edited = amend(waiting, STEER, 10)
    assert edited is not None
    left = with_absorbed(edited, STEER, LATER)
    assert left.turn is not None
    assert left.buffer is not None
    assert (left.turn.tail, left.turn.amendments) == (2, 0)
    assert (left.buffer.head, left.buffer.amendments, left.waiting) == (3, 1, 1)


def test_a_turn_is_no_larger_than_it_may_be_with_all_that_it_absorbed() -> None:
    assert absorbed(receive(ANSWERED, STEER, LATER, size=900).conversation).size == 1_000
    assert absorbed(receive(ANSWERED, STEER, LATER, size=901).conversation).size == 100


def test_what_was_on_hold_is_absorbed_once_somebody_flushed_it() -> None:
    held = touch(receive(ANSWERED, STEER, LATER).conversation, ANN, Touch("hold", 60_000), STEER, LATER).conversation
    assert absorbed(held).tail == 1
    assert absorbed(touch(held, ANN, Touch("flush"), STEER, LATER).conversation).tail == 2


def test_what_was_cleared_is_never_absorbed_with_what_came_after_it() -> None:
    waiting = receive(ANSWERED, STEER, LATER).conversation
    cleared = touch(waiting, ANN, Touch("clear"), STEER, LATER).conversation
    assert absorbed(receive(cleared, STEER, LATER).conversation, Rules(on_busy="steer")).tail == 1


def test_an_interrupted_turn_is_counted_with_the_first_portion_of_what_waits() -> None:
    """The last portion, into which messages still come, stays as large as it was."""
    waiting = receive(ANSWERED, STEER, LATER, size=900).conversation
    buffer = interrupted(waiting, LATER).conversation.buffer
    assert buffer is not None
    assert (buffer.portions, buffer.size) == ((), 1_000)
    buffer = interrupted(receive(waiting, STEER, LATER, size=800).conversation, LATER).conversation.buffer
    assert buffer is not None
    assert ([portion.size for portion in buffer.portions], buffer.size) == ([1_000], 800)


def test_an_answer_is_sent_if_by_the_latest_message_it_may_not_begin_anew() -> None:
    rules = Rules(on_stale="regenerate")
    turn = receive(ANSWERED, rules, LATER).conversation.turn
    assert turn is not None
    assert turn.on_stale == "regenerate"
    assert noted_stale(turn, Rules(on_stale="regenerate", max_interrupts=0)).on_stale == "send"
