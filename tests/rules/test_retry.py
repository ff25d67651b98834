"""After a failure: again when, or dead letter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from turntake.rules.conversation import Answered, Dead, Progress, Retry, SealedTurn
from turntake.rules.deadline import Deadline
from turntake.rules.retry import (
    ALONE_AFTER,
    Setback,
    after_failure,
    after_postponement,
    after_setback,
    away_ms,
    backoff_ms,
    before_attempt,
    company_of,
)
from turntake.rules.rules import Rules
from turntake.rules.transitions import PROMISE_BROKEN, WORKER_STOPPED

TURN = SealedTurn("turn_x", 1, 1, Deadline(0, "silence"), 0, 0, 0, ())
RULES = Rules(max_attempts=3, ttl_ms=10_000)


@pytest.mark.parametrize(
    ("failures", "chance", "expected"),
    [(1, 0.0, 500), (1, 0.5, 750), (2, 0.0, 5_000), (3, 0.0, 30_000), (4, 0.0, 30_000), (100, 0.0, 30_000)],
)
def test_the_pauses_after_failures_grow_to_a_minute(failures: int, chance: float, expected: int) -> None:
    """Half of it is fixed, the other half is chance."""
    assert backoff_ms(failures, chance) == expected


@pytest.mark.parametrize(
    ("waits", "chance", "expected"),
    [(0, 0.0, 500), (0, 0.5, 750), (1, 0.0, 1_000), (2, 0.0, 2_000), (6, 0.0, 30_000), (1_000, 0.0, 30_000)],
)
def test_the_pause_for_somebody_who_is_away_doubles_up_to_a_minute(waits: int, chance: float, expected: int) -> None:
    assert away_ms(waits, chance) == expected


@given(st.integers(1, 1_000), st.floats(0, 1, exclude_max=True))
def test_every_pause_has_bounds(times: int, chance: float) -> None:
    """Never at once, never for ever."""
    assert 500 <= backoff_ms(times, chance) <= 60_000
    assert 500 <= away_ms(times, chance) <= 60_000


def test_a_failure_is_retried_with_a_pause() -> None:
    """The error travels with the turn."""
    assert after_failure(TURN, RULES, "boom", 0, 0.0) == Retry(500, error="boom")
    assert after_failure(replace(TURN, failures=1), RULES, "boom", 0, 0.0) == Retry(5_000, error="boom")


def test_the_last_failure_is_a_dead_letter() -> None:
    """`max_attempts` counts this one."""
    assert after_failure(replace(TURN, failures=2), RULES, "boom", 0, 0.0) == Dead("failed 3 times", "boom")


@pytest.mark.parametrize(("now", "is_retry"), [(9_500, True), (9_501, False)])
def test_a_retry_beyond_the_time_to_live_is_a_dead_letter(now: int, is_retry: bool) -> None:
    """What could only be tried after `ttl_ms` expires at once."""
    settlement = after_failure(TURN, RULES, "boom", now, 0.0)
    assert settlement == (Retry(500, error="boom") if is_retry else Dead("expired", "boom"))


def test_a_postponement_is_no_failure() -> None:
    """The wish of the agent is kept, but it cannot be called in a circle."""
    assert after_postponement(TURN, RULES, 7_000, "", 0) == Retry(7_000, is_failure=False)
    assert after_postponement(TURN, RULES, 0, "", 0) == Retry(500, is_failure=False)


def test_a_postponement_beyond_the_time_to_live_expires() -> None:
    """A rate limit cannot keep a turn for ever."""
    assert after_postponement(TURN, RULES, 10_001, "", 0) == Dead("expired", "Nobody could deliver it in time.")


@pytest.mark.parametrize(
    ("error", "reason"),
    [(WORKER_STOPPED, "stopped its worker 3 times"), (PROMISE_BROKEN, "failed 3 times"), ("boom", "failed 3 times")],
)
def test_a_turn_whose_last_lease_ended_without_a_word_is_not_tried_again(error: str, reason: str) -> None:
    """It was alone each time, or the agent kept no promise; its dead letter says which."""
    assert before_attempt(replace(TURN, failures=2, error=error), RULES) is None
    assert before_attempt(replace(TURN, failures=3, error=error), RULES) == Dead(reason, error)


def test_leases_that_ended_in_company_end_no_turn() -> None:
    assert before_attempt(replace(TURN, lapses=99), RULES) is None


@pytest.mark.parametrize(
    ("lapses", "company"), [(0, "anybody"), (1, "anybody"), (2, "few"), (ALONE_AFTER, "nobody"), (9, "nobody")]
)
def test_with_each_lapse_the_company_gets_smaller(lapses: int, company: str) -> None:
    assert company_of(replace(TURN, lapses=lapses)) == company


@pytest.mark.parametrize(
    ("now", "settlement"),
    [
        (0, Retry(4_000, is_failure=False, error="nobody", is_away=True)),
        (8_000, Retry(2_000, is_failure=False, error="nobody", is_away=True)),
        (9_500, Retry(500, is_failure=False, error="nobody", is_away=True)),
        (9_501, Dead("expired", "nobody")),
    ],
)
def test_somebody_who_is_away_is_tried_until_the_time_to_live_is_over(now: int, settlement: Retry | Dead) -> None:
    """It costs nothing, and the last try is at the very end."""
    turn = replace(TURN, waits=3, failures=2)
    assert after_setback(turn, Progress(), RULES, Setback("away", "nobody"), now, 0.0) == settlement


def test_an_absent_platform_is_waited_for_anew_once_the_answer_is_saved() -> None:
    """That the agent was away before does not make the first pause of sending a long one."""
    saved, turn = Progress(("hello",), is_final=True), replace(TURN, waits=9)
    expected = Retry(500, is_failure=False, error="nobody", is_away=True)
    assert after_setback(turn, saved, Rules(), Setback("away", "nobody"), 0, 0.0) == expected


@pytest.mark.parametrize(
    ("turn", "is_empty", "expected"),
    [
        pytest.param(replace(TURN, amendments=1), True, Answered(), id="all deleted"),
        pytest.param(replace(TURN, amendments=1, failures=3), True, Answered(), id="also after failures"),
        pytest.param(replace(TURN, amendments=1), False, None, id="something is left"),
        pytest.param(replace(TURN, amendments=1, progress=Progress(("one",))), True, None, id="an answer is under way"),
        pytest.param(TURN, True, None, id="nobody deleted anything: they are missing"),
    ],
)
def test_a_turn_whose_messages_were_all_deleted_is_settled_without_the_agent(
    turn: SealedTurn, is_empty: bool, expected: Answered | None
) -> None:
    assert before_attempt(turn, RULES, is_empty) == expected


def test_a_turn_that_cannot_be_read_is_given_up_unless_its_answer_is_saved() -> None:
    """Nobody can answer it; but to send an answer that is there, no message need be read."""
    dead = before_attempt(TURN, RULES, is_unreadable=True)
    assert isinstance(dead, Dead)
    assert dead.reason == "cannot be read"
    assert before_attempt(replace(TURN, progress=Progress(("one",), is_final=True)), RULES, is_unreadable=True) is None


@pytest.mark.parametrize(
    ("setback", "settlement"),
    [
        (Setback("failed", "boom"), Retry(30_000, error="boom")),
        (Setback("timed out", "boom"), Retry(30_000, error="boom")),
        (Setback("put off", "busy", 4_000), Retry(4_000, is_failure=False, error="busy")),
        (Setback("put off", "busy", 0), Retry(500, is_failure=False, error="busy")),
        (Setback("given up", "never"), Dead("given up", "never")),
    ],
)
def test_each_kind_of_setback_has_its_own_end(setback: Setback, settlement: Retry | Dead) -> None:
    turn = replace(TURN, failures=2)
    assert after_setback(turn, Progress(), Rules(max_attempts=9), setback, 0, 0.0) == settlement


def test_the_last_time_out_is_the_reason_of_the_dead_letter() -> None:
    turn = replace(TURN, failures=2)
    assert after_setback(turn, Progress(), RULES, Setback("timed out", "boom"), 0, 0.0) == Dead("timed_out", "boom")


def test_sending_has_attempts_of_its_own() -> None:
    """The answer was saved in this attempt: the agent's failures no longer count, those of sending do."""
    saved, setback = Progress(("hello",), is_final=True), Setback("failed", "boom")
    asked_twice = replace(TURN, failures=2)
    assert after_setback(asked_twice, Progress(), RULES, setback, 0, 0.0) == Dead("failed 3 times", "boom")
    assert after_setback(asked_twice, saved, RULES, setback, 0, 0.0) == Retry(500, error="boom")
    sent_twice = replace(TURN, failures=2, progress=saved)
    assert after_setback(sent_twice, saved, RULES, setback, 0, 0.0) == Dead("failed 3 times", "boom")
