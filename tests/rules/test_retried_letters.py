"""How messages come back out of the dead letters, a step a test."""

from msgspec.structs import replace

from turntake.rules.conversation import Closed, Conversation, Portion, ReplyReport, SealedTurn, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.retried_letters import RESENT_KEPT, requeue, resume
from turntake.rules.rules import Rules
from turntake.rules.touching import touch
from turntake.rules.transitions import claim, receive
from turntake.testing.clock import START

ANN = ConversationKey.of("ann")
WAITING = receive(Conversation(), Rules(), START).conversation


def letter(turn: SealedTurn | None = None, **parts: int) -> Closed:
    closed = Closed("turn_1", 1, 1, "dead", 1, START, turn)
    return replace(closed, **parts)


def sealed() -> SealedTurn:
    turn = claim(WAITING, ANN, 60_000, START + 1_000).turn
    assert turn is not None
    return turn


def test_an_answer_that_is_sent_again_has_all_its_attempts() -> None:
    tried = replace(sealed(), failures=3, lapses=2, waits=4, error="no route")
    turn = resume(Conversation(), letter(tried), START + 9_000).turn
    assert turn is not None
    assert (turn.failures, turn.lapses, turn.waits, turn.error) == (0, 0, 0, "")
    assert (turn.is_leased, turn.due_at) == (False, START + 9_000)


def test_the_latest_replies_that_are_sent_again_are_remembered() -> None:
    """Platforms repeat what they said of them."""
    failed = ReplyReport(0, "failed", START, "new")
    known = replace(sealed(), resent=tuple(f"old-{number}" for number in range(RESENT_KEPT)), reports=(failed,))
    turn = resume(Conversation(), letter(known), START).turn
    assert turn is not None
    assert (turn.resent[-1], len(turn.resent), turn.reports) == ("new", RESENT_KEPT, ())


def test_what_comes_back_to_wait_is_due_though_somebody_put_the_rest_on_hold() -> None:
    held = touch(WAITING, ANN, Touch("hold", 60_000), Rules(), START).conversation
    buffer = requeue(held, letter(), 1, 0, START + 1_000).buffer
    assert buffer is not None
    assert (buffer.due.at, buffer.due.reason, buffer.held_until) == (START + 1_000, "retried", 0)


def test_an_edit_that_comes_back_takes_no_room_for_a_message() -> None:
    conversation = WAITING
    for _ in range(Rules().capacity - 2):
        conversation = receive(conversation, Rules(), START).conversation
    assert conversation.waiting == Rules().capacity - 1
    for count, amendments, is_too_much in ((2, 1, False), (2, 0, True)):
        buffer = requeue(conversation, letter(), count, amendments, START).buffer
        assert buffer is not None
        assert bool(buffer.portions) == is_too_much


def test_portions_whose_messages_are_gone_do_not_come_back() -> None:
    """Of three with two messages each, those that are left fill one or two: the last of them is what waits."""
    cleared = replace(letter(), portions=(Portion(3, 0, 10), Portion(5, 0, 10), Portion(7, 0, 10)))
    for count, ends in ((6, [3, 5]), (5, [3, 5]), (4, [3]), (2, [])):
        buffer = requeue(Conversation(), cleared, count, 0, START).buffer
        assert buffer is not None
        first = Conversation().next_seq
        assert [portion.end - first + 1 for portion in buffer.portions] == ends, count
