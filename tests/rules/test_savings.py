"""Savings: what a turn adds, and that sums come together whatever parts they are in."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from turntake.rules.conversation import SealedTurn
from turntake.rules.deadline import Deadline
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Claim
from turntake.rules.savings import (
    NOTHING,
    OTHERS,
    SLOT_GONE_MS,
    SavingsSlot,
    Sums,
    add_up,
    bounded,
    less,
    of_answered,
    total,
)

AT = 1_700_000_000_000
counts = st.integers(0, 1_000)
sums = st.builds(Sums, counts, counts, counts, counts, counts, counts)
parts = st.dictionaries(st.sampled_from(["acme", "globex", "initech", OTHERS]), sums)


def claim_of(messages: int, *, due_at: int = AT, last_at: int = AT, resent: tuple[str, ...] = ()) -> Claim:
    turn = SealedTurn("turn_1", 1, messages, Deadline(due_at, "silence"), AT, last_at, AT, (), resent=resent)
    return Claim(ConversationKey.of("ann"), 1, turn, tuple(Message(f"m{number}", "hi") for number in range(messages)))


def test_a_turn_is_one_call_for_all_its_messages() -> None:
    added = of_answered(claim_of(3, due_at=AT + 1_500))
    assert added == Sums(turns=1, messages=3, added_ms=1_500)
    assert added.calls_avoided == 2


def test_a_message_alone_avoids_nothing() -> None:
    assert of_answered(claim_of(1)).calls_avoided == 0


def test_what_was_due_before_its_last_message_added_no_time() -> None:
    """As a message that came after somebody flushed what waits."""
    assert of_answered(claim_of(2, due_at=AT - 500)).added_ms == 0


def test_a_turn_for_which_nobody_was_asked_adds_nothing() -> None:
    """All its messages were deleted; or it was answered before, and only its reply is sent again."""
    assert of_answered(claim_of(0)) == NOTHING
    assert of_answered(claim_of(3, resent=("wamid.1",))) == NOTHING


def test_an_interrupted_answer_was_a_call_too() -> None:
    """Three messages, the first of which was being answered when the second came."""
    assert (Sums(turns=1, messages=3) + Sums(interrupted=1)).calls_avoided == 1
    assert Sums(interrupted=1).calls_avoided == 0


@settings(deadline=None)
@given(st.lists(parts))
def test_the_total_does_not_depend_on_the_parts(all_parts: list[dict[str, Sums]]) -> None:
    by_tenant = add_up(all_parts)
    assert total(by_tenant) == sum((total(part) for part in all_parts), NOTHING)
    assert NOTHING not in by_tenant.values()


@settings(deadline=None)
@given(parts, parts)
def test_what_is_taken_away_and_added_again_changes_nothing(whole: dict[str, Sums], part: dict[str, Sums]) -> None:
    assert add_up((less(whole, part), part)) == add_up([whole])


@settings(deadline=None)
@given(parts, st.integers(1, 4))
def test_only_so_many_tenants_are_told_apart_and_the_total_stays(by_tenant: dict[str, Sums], most: int) -> None:
    kept = bounded(by_tenant, most)
    assert len(kept) <= most
    assert total(kept) == total(by_tenant)
    assert all(kept[name] == by_tenant[name] for name in kept if name != OTHERS)
    left_out = [by_tenant[name].turns for name in by_tenant if name not in kept]
    told_apart = [kept[name].turns for name in kept if name != OTHERS]
    assert not left_out or not told_apart or max(left_out) <= min(told_apart)


def test_a_slot_is_free_when_it_was_given_back_or_nobody_wrote_to_it_for_long() -> None:
    assert SavingsSlot().is_free(AT)
    assert SavingsSlot("", AT).is_free(AT)
    assert not SavingsSlot("one", AT).is_free(AT + SLOT_GONE_MS)
    assert SavingsSlot("one", AT).is_free(AT + SLOT_GONE_MS + 1)


@settings(deadline=None)
@given(parts)
def test_a_slot_is_read_as_it_was_written(by_tenant: dict[str, Sums]) -> None:
    slot = SavingsSlot("one", AT, AT, by_tenant)
    assert msgspec.json.decode(msgspec.json.encode(slot), type=SavingsSlot) == slot
