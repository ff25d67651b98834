"""What is too much for one turn is several, and each of them knows what it holds."""

from turntake.rules.conversation import Answered, Conversation
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.model import Model
from turntake.rules.records import Append
from turntake.rules.rules import Rules
from turntake.rules.transitions import receive

LEASE_MS = 60_000
KEY = ConversationKey.of("ann")


def said(model: Model, count: int, rules: Rules, text: str = "hi") -> None:
    for number in range(count):
        model.append([Append(KEY, Message(f"{text[:5]}-{number}", text), rules)], 0)


def ranges_of_turns(model: Model) -> list[tuple[int, int]]:
    """Claims and answers one turn after the other, and says which messages each had."""
    ranges = []
    while claims := model.claim(1, LEASE_MS, 3_600_000):
        (claim,) = claims
        assert [message.seq for message in claim.messages] == list(range(claim.turn.head, claim.turn.tail + 1))
        ranges.append((claim.turn.head, claim.turn.tail))
        assert model.settle(claim, Answered(), 3_600_000)
    return ranges


def test_more_messages_than_a_turn_may_have_are_several_turns() -> None:
    """However many came while the agent was busy; in order, and none is left out."""
    model = Model()
    said(model, 125, Rules())
    assert ranges_of_turns(model) == [(1, 50), (51, 100), (101, 125)]


def test_more_bytes_than_a_turn_may_have_are_several_turns() -> None:
    """A message that is too large by itself goes alone."""
    model, rules = Model(), Rules(max_turn_bytes=1_000)
    said(model, 2, rules, "x" * 400)
    said(model, 1, rules, "y" * 5_000)
    said(model, 3, rules, "z" * 400)
    assert ranges_of_turns(model) == [(1, 2), (3, 3), (4, 5), (6, 6)]


def test_the_rest_of_what_is_too_much_for_one_turn_is_due_at_once() -> None:
    """It has waited long enough; nobody writes for it to be handed over."""
    model = Model()
    said(model, 60, Rules())
    (claim,) = model.claim(1, LEASE_MS, 0)
    assert model.settle(claim, Answered(), 10)
    due = model.next_due()
    assert due is not None
    assert due <= 10


def test_amendments_are_counted_with_the_portion_that_they_are_in() -> None:
    """What waits is counted right before and after each portion is sealed."""
    model, rules = Model(), Rules(capacity=3)
    said(model, 2, rules)
    model.append([Append(KEY, Message("a1", "better", amends="hi-0"), rules)], 0)
    said(model, 2, rules, "again")
    waiting = [model.conversations[KEY].waiting]
    turns = []
    while claims := model.claim(1, LEASE_MS, 3_600_000):
        waiting.append(model.conversations[KEY].waiting)
        turns.append((claims[0].turn.head, claims[0].turn.tail, claims[0].turn.amendments))
        model.settle(claims[0], Answered(), 3_600_000)
    assert turns == [(1, 4, 1), (5, 5, 0)]
    assert waiting == [4, 1, 0]


def test_amendments_of_a_full_portion_make_no_room_in_the_next() -> None:
    """They count where they are: the turns after it have as many messages as any."""
    model, rules = Model(), Rules(capacity=2)
    said(model, 1, rules)
    model.append([Append(KEY, Message("a1", "better", amends="hi-0"), rules)], 0)
    said(model, 4, rules, "again")
    buffer = model.conversations[KEY].buffer
    assert buffer is not None
    assert [portion.end for portion in buffer.portions] == [4, 6]


def test_an_interrupted_turn_of_full_size_keeps_what_interrupted_it() -> None:
    """Without it, the turn would come a second time under the same id and number."""
    model, rules = Model(), Rules(on_busy="interrupt", capacity=3)
    said(model, 3, rules)
    (claim,) = model.claim(1, LEASE_MS, 0)
    said(model, 1, rules, "wait")
    assert ranges_of_turns(model) == [(1, 4)]
    assert claim.turn.id not in {closed.id for closed in model.closed.values() if closed.status == "answered"}


def test_a_turn_has_room_for_exactly_as_many_bytes_as_the_rules_allow() -> None:
    """One more begins the next turn."""
    rules = Rules(max_turn_bytes=1_000)
    full = receive(receive(Conversation(), rules, 0, size=600).conversation, rules, 0, size=400).conversation
    assert full.buffer is not None
    assert (full.buffer.portions, full.buffer.size) == ((), 1_000)
    more = receive(full, rules, 0, size=1).conversation
    assert more.buffer is not None
    assert ([portion.size for portion in more.buffer.portions], more.buffer.size) == ([1_000], 1)


def test_an_interrupted_turn_takes_its_amendments_along() -> None:
    """Put back in front of several portions, it is part of the first."""
    model, queue, interrupt = Model(), Rules(capacity=2), Rules(on_busy="interrupt")
    said(model, 1, queue)
    model.append([Append(KEY, Message("a1", "better", amends="hi-0"), queue)], 0)
    model.claim(1, LEASE_MS, 3_600_000)
    said(model, 3, queue, "again")
    said(model, 1, interrupt, "wait")
    (claim,) = model.claim(1, LEASE_MS, 3_600_000)
    assert (claim.turn.head, claim.turn.tail, claim.turn.amendments) == (1, 4, 1)
    assert model.conversations[KEY].waiting == 2
