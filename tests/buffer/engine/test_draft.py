"""A draft: what must be written for what was decided on one conversation, and nothing while nothing changed."""

from msgspec.structs import replace

from turntake.buffer.engine.draft import NEW, RANDOM_BITS, Draft
from turntake.rules.conversation import Answered, Closed, Dead, Progress, Touch
from turntake.rules.message import Message
from turntake.rules.records import Append, Claim
from turntake.testing.busy_contract import STEER
from turntake.testing.store_contract import ANN, PLAIN

NOW = 1_700_000_000_000


def said(*ids: str, after: Draft | None = None) -> Draft:
    """A draft that adds these messages to a conversation."""
    draft = Draft(ANN, after.written if after else NEW, NOW)
    for id in ids:
        draft.append(Append(ANN, Message(id), PLAIN), b"")
    draft.encode()
    return draft


def test_open_messages_begin_with_the_turn_and_then_with_the_buffer() -> None:
    """Readers and claims begin there, and what is older may be forgotten."""
    assert Draft(ANN, NEW, NOW).open_from == 1
    waiting = said("m1", "m2")
    assert waiting.open_from == 1
    claimed = Draft(ANN, waiting.written, NOW + 60_000)
    turn = claimed.claim(60_000)
    assert turn is not None
    claimed.encode()
    behind = said("m3", after=claimed)
    assert behind.open_from == 1, "an answer is under way"
    settled = Draft(ANN, behind.written, NOW)
    assert settled.settle(Claim(ANN, claimed.conversation.epoch, turn, ()), Answered())
    assert settled.open_from == 3
    settled.encode()
    cleared = Draft(ANN, settled.written, NOW)
    cleared.touch(Touch("clear"), PLAIN)
    assert cleared.open_from == 4


def test_whoever_answers_is_told_of_what_it_may_absorb() -> None:
    """And not of a message that was over a limit, which nobody may."""
    claimed = Draft(ANN, said("m1").written, NOW + 60_000)
    assert claimed.claim(60_000) is not None
    claimed.encode()
    draft = Draft(ANN, claimed.written, NOW + 60_000)
    draft.append(Append(ANN, Message("m2"), STEER, over="messages_per_minute"), b"")
    assert not draft.is_offer
    draft.append(Append(ANN, Message("m3"), STEER), b"")
    draft.append(Append(ANN, Message("m4"), STEER, over="messages_per_minute"), b"")
    assert draft.is_offer


def answered_letter(id: str, after: Draft | None) -> Draft:
    """A draft in which a turn of one message, whose answer is complete, becomes a dead letter."""
    claimed = Draft(ANN, said(id, after=after).written, NOW + 60_000)
    turn = claimed.claim(60_000)
    assert turn is not None
    claim = Claim(ANN, claimed.conversation.epoch, turn, ())
    assert claimed.save(claim, Progress(("answer",), 0, True))
    assert claimed.settle(claim, Dead("failed"))
    claimed.encode()
    return claimed


def test_open_messages_begin_with_the_oldest_turn_that_is_to_be_sent_again() -> None:
    """In whatever order they were retried: what they answer must not be forgotten meanwhile."""
    older = answered_letter("m1", None)
    newer = answered_letter("m2", older)
    busy = Draft(ANN, said("m3", after=newer).written, NOW + 60_000)
    assert busy.claim(60_000) is not None
    assert busy.open_from == 3
    for draft, first in ((newer, 2), (older, 1)):
        (letter,) = draft.closed
        busy.retry_letter(letter, ())
        assert busy.open_from == first


def test_a_version_counts_writes_and_is_never_the_same_by_chance() -> None:
    """Two servers that went different ways have other versions for as many writes."""
    versions = {said("m1").version for _ in range(50)}
    assert {version >> RANDOM_BITS for version in versions} == {NOW // 1000 + 1}
    assert len(versions) > 40
    assert said("m2", after=said("m1")).version >> RANDOM_BITS == NOW // 1000 + 2


def test_the_versions_of_a_conversation_that_begins_anew_are_beyond_all_before() -> None:
    """Whoever remembers a row from before it was forgotten is refused. Lua, which compares them, counts to 2 ** 53."""
    before = said("m2", after=said("m1"))
    anew = Draft(ANN, NEW, NOW + 60_000)
    anew.append(Append(ANN, Message("m1"), PLAIN), b"")
    anew.encode()
    assert before.version < anew.version < 2**53
    far = 3 * NOW
    assert ((far // 1000 + 1) << RANDOM_BITS) < 2**53, "in a century"


def test_what_changes_nothing_has_nothing_to_write() -> None:
    before = said("m1")
    draft = Draft(ANN, before.written, NOW, frozenset({"m1"}))
    assert draft.append(Append(ANN, Message("m1"), PLAIN), b"").status == "duplicate"
    draft.encode()
    assert not draft.is_changed
    assert (draft.written, draft.body, draft.added) == (before.written, b"", {})


def test_one_id_twice_in_a_draft_is_added_once() -> None:
    draft = Draft(ANN, NEW, NOW)
    statuses = [draft.append(Append(ANN, Message("m1"), PLAIN), b"").status for _ in range(2)]
    assert statuses == ["buffered", "duplicate"]
    assert [added.seq for added in draft.added.values()] == [1]


def test_the_messages_of_a_letter_come_back_in_their_order() -> None:
    """With the next numbers, however the store listed them."""
    draft = Draft(ANN, said("m1", "m2", "m3").written, NOW)
    letter = Closed("t1", 1, 2, "dead", 1, NOW, None)
    draft.retry_letter(letter, tuple(replace(Message(f"m{seq}"), seq=seq) for seq in (2, 1)))
    assert draft.moved == ((1, 4), (2, 5))
    assert (draft.ended, draft.is_changed) == ((letter,), True)
