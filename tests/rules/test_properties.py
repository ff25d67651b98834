"""What the rules promise, over random lives of the model: order, deadlines, one answer, nothing lost, nothing mixed.

Blank messages are in test_message.py, turns that expire in test_retry.py.
"""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from harness.histories import (
    KEYS,
    LEASE_MS,
    QUEUE,
    Finish,
    Sign,
    Step,
    Wait,
    World,
    Write,
    finishes,
    lives,
    scaled,
    signs,
    waits,
    work,
    writes,
)
from turntake.rules.conversation import Answered, Dead, Retry
from turntake.rules.rules import Rules
from turntake.testing.store_machine import ModelMachine

many = settings(max_examples=scaled(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
ANN = KEYS[0]


@pytest.mark.timeout(600 + scaled(400))
def test_all_promises_hold_after_every_step_of_any_life() -> None:
    """Every order and every fault at once, on several conversations with differing rules."""
    lives = settings(max_examples=scaled(2_000), stateful_step_count=50, deadline=None)
    run_state_machine_as_test(ModelMachine, settings=lives)


@many
@given(lives())
def test_order_is_kept_inside_turns_and_across_them(life: list[Step]) -> None:
    """Messages of a turn are in order of arrival, and no turn is answered before an earlier one."""
    world = World().live(life)
    world.drain()
    assert all([m.seq for m in claim.messages] == sorted(m.seq for m in claim.messages) for claim in world.claimed)
    for key in KEYS:
        ranges = [(claim.turn.head, claim.turn.tail) for claim in world.answered if claim.key == key]
        assert all(before[1] < after[0] for before, after in pairwise(ranges))


@many
@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=15), st.integers(0, 4_000), st.integers(0, 4_000))
def test_each_message_resets_the_deadline(gaps: list[int], silence_ms: int, typing_ms: int) -> None:
    """Due a silence after the latest message, longer after a short gap, and no later than max wait."""
    rules = Rules(silence_ms=silence_ms, typing_inference_ms=typing_ms, max_wait_ms=20_000)
    world = World()
    for number, gap in enumerate(gaps):
        world.do(Wait(gap))
        world.do(Write(ANN, number, rules))
        quiet_ms = max(silence_ms, typing_ms) if number and gap < typing_ms else silence_ms
        assert world.conversation(ANN).due_at == min(world.now + quiet_ms, gaps[0] + 20_000)


@many
@given(lives())
def test_activity_never_flushes(life: list[Step]) -> None:
    """A sign of composing creates no turn and no buffer, and makes nothing due that was not."""
    world = World()
    for step in life:
        before = dict(world.model.conversations)
        world.do(step)
        if not isinstance(step, Sign):
            continue
        assert before.keys() == world.model.conversations.keys()
        for key, was in before.items():
            now = world.conversation(key)
            assert (now.state, now.waiting, now.epoch) == (was.state, was.waiting, was.epoch)
            if now.due_at != was.due_at:
                assert now.due_at is not None
                assert now.due_at > world.now or step.kind == "composing"


@many
@given(lives(signs))
def test_composing_only_ever_pushes_back(life: list[Step]) -> None:
    """With a message waiting, signs move the deadline back and, once composing stopped, not before a last silence."""
    world = World()
    world.do(Write(ANN, 1, QUEUE))
    for step in life:
        assert isinstance(step, Sign)
        before = world.conversation(ANN).due_at
        world.do(step)
        after = world.conversation(ANN).due_at
        assert before is not None
        assert after is not None
        assert after >= (before if step.kind == "composing" else min(before, world.now + QUEUE.silence_ms))
        world.do(Wait(100))


@many
@given(lives(writes(), waits, signs, work("answer")))
def test_one_handler_run_per_complete_answer(life: list[Step]) -> None:
    """Without crashes each message is handed over in one turn, and each turn once."""
    world = World().live(life)
    world.drain()
    assert world.claimed == world.answered
    handed_over = Counter((claim.key, message.id) for claim in world.claimed for message in claim.messages)
    assert handed_over == Counter(world.acknowledged)


@many
@given(lives(writes(), waits, signs, work("crash", "save and crash", "fail")))
def test_nothing_is_cleared_before_it_was_delivered(life: list[Step]) -> None:
    """However often a turn is claimed, saved, retried and lost, its messages stay."""
    world = World().live(life)
    assert {(key, m.id) for key in KEYS for m in world.open_messages(key)} == world.acknowledged


@many
@given(lives(), st.lists(st.sampled_from([Answered(("hello",)), Answered(), Dead("late"), Retry(0)]), min_size=1))
def test_completing_twice_changes_nothing(life: list[Step], repeats: list[Answered | Dead | Retry]) -> None:
    """The same settlement is confirmed, another is refused, and neither leaves a trace."""
    world = World().live(life)
    before = world.picture()
    for claim in world.answered:
        for settlement in repeats:
            confirmed = world.model.settle(claim, settlement, world.now + 1)
            assert confirmed == isinstance(settlement, Answered)
    assert world.picture() == before


@many
@given(lives())
def test_conversations_and_topics_never_mix(life: list[Step]) -> None:
    """Each conversation looks as if it had been alone in the store."""
    together = World().live([step for step in life if not isinstance(step, Finish)])
    for key in KEYS:
        own = [step for step in life if not isinstance(step, Finish) and getattr(step, "key", key) == key]
        alone = World().live(own)
        assert alone.model.find(key) == together.model.find(key)
        assert alone.claimed == [claim for claim in together.claimed if claim.key == key]


@many
@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from([QUEUE, Rules(on_busy="interrupt")]), st.booleans())
def test_a_message_during_answering_belongs_to_the_next_turn_or_the_restarted_one(
    first: int, second: int, rules: Rules, is_saved: bool
) -> None:
    """Queued, the running turn keeps its messages; interrupting, one turn with all of them follows."""
    world = World()
    for number in range(first):
        world.do(Write(ANN, number, rules))
    world.now = world.conversation(ANN).due_at or 0
    world.work("save and crash" if is_saved else "crash")
    for number in range(first, first + second):
        world.do(Write(ANN, number, rules))
    world.do(Finish(0))
    world.drain()
    texts = [[message.id for message in claim.messages] for claim in world.answered]
    ids = [f"m{number}" for number in range(first + second)]
    is_merged = rules.on_busy == "interrupt" and not is_saved
    assert texts == ([ids] if is_merged else [ids[:first], ids[first:]])


@many
@given(lives(writes(), waits, signs, work("answer", "crash", "save and crash", "fail", "give up"), finishes))
def test_no_acknowledged_message_is_lost_under_any_crash(life: list[Step]) -> None:
    """In the end each is in one answer or in one dead letter."""
    world = World().live(life)
    world.drain()
    ended = Counter((claim.key, m.id) for claim in world.answered + world.given_up for m in claim.messages)
    assert ended == Counter(world.acknowledged)
    letters = {letter_id for claim in world.given_up if (letter_id := claim.turn.id)}
    assert letters == world.model.letters.keys()


@many
@given(lives())
def test_never_two_live_claims_on_one_conversation(life: list[Step]) -> None:
    """A conversation is claimed again only once the lease ran out, or the claim was settled or interrupted."""
    world = World()
    for step in life:
        before, count = dict(world.model.conversations), len(world.claimed)
        world.do(step)
        for claim in world.claimed[count:]:
            was = before[claim.key]
            assert claim.epoch == max(was.epoch + 1, world.now)
            if was.turn is not None and was.turn.is_leased:
                assert was.turn.due_at <= world.now
                assert claim.turn.due_at == world.now + LEASE_MS


@many
@given(lives())
def test_due_no_later_than_max_wait(life: list[Step]) -> None:
    """No message and no sign moves a deadline beyond max wait after the buffer's first message."""
    world = World()
    for step in life:
        world.do(step)
        for conversation in world.model.conversations.values():
            if conversation.buffer is not None:
                latest = conversation.buffer.first_at + QUEUE.max_wait_ms
                assert conversation.buffer.due.at <= max(latest, world.now)
