"""After a failure: again when, or dead letter."""

from typing import Literal

import msgspec
from msgspec.structs import replace

from turntake.rules.conversation import Answered, Dead, Progress, Retry, SealedTurn, Settlement
from turntake.rules.rules import Rules

FIRST_DELAY_MS = 1_000
LEAST_PAUSE_MS = 500
LONGEST_DELAY_MS = 60_000


class Setback(msgspec.Struct, frozen=True):
    """Why an attempt brought no answer: it failed, or the agent or the platform asked for time, or will never do it."""

    kind: Literal["failed", "put off", "given up"]
    error: str
    after_ms: int = 0
    """How long a pause was asked for."""


def backoff_ms(failures: int, chance: float) -> int:
    """The pause after the `failures`-th failure: doubling, with `chance` in [0, 1) spreading the second half."""
    longest = min(FIRST_DELAY_MS * 2 ** min(failures - 1, 16), LONGEST_DELAY_MS)
    return int(longest / 2 + chance * longest / 2)


def after_setback(
    turn: SealedTurn, progress: Progress, rules: Rules, setback: Setback, now: int, chance: float
) -> Settlement:
    """What follows a setback. `turn` is as it was claimed; `progress` is how far its answer was when it happened."""
    if setback.kind == "put off":
        return after_postponement(turn, rules, setback.after_ms, setback.error, now)
    if setback.kind == "given up":
        return Dead("given up", setback.error)
    # Sending has attempts of its own: once the answer is saved, failures count from there.
    is_newly_final = progress.is_final and not turn.progress.is_final
    return after_failure(replace(turn, failures=0) if is_newly_final else turn, rules, setback.error, now, chance)


def after_failure(turn: SealedTurn, rules: Rules, error: str, now: int, chance: float) -> Settlement:
    """What follows a failed attempt. `turn.failures` counts the failures before this one."""
    failures = turn.failures + 1
    if failures >= rules.max_attempts:
        return Dead(f"failed {failures} times", error)
    return _unless_expired(Retry(backoff_ms(failures, chance), error=error), rules, turn, now)


def after_postponement(turn: SealedTurn, rules: Rules, wait_ms: int, error: str, now: int) -> Settlement:
    """What follows when the agent asks to be called later: the same turn again, at no cost in attempts."""
    return _unless_expired(Retry(max(wait_ms, LEAST_PAUSE_MS), is_failure=False, error=error), rules, turn, now)


def before_attempt(turn: SealedTurn, rules: Rules, is_empty: bool = False) -> Answered | Dead | None:
    """How a claimed turn ends without being tried: all its messages were deleted in time, so that there is nothing to
    answer, or each earlier attempt ended without a word."""
    if is_empty and turn.amendments and turn.progress == Progress():
        return Answered()
    if turn.failures < rules.max_attempts:
        return None
    return Dead(f"failed {turn.failures} times", turn.error or "The worker stopped during every attempt.")


def _unless_expired(retry: Retry, rules: Rules, turn: SealedTurn, now: int) -> Settlement:
    """`ttl_ms` bounds how long a turn is tried, so one that waited through an outage still gets its attempts."""
    if now + retry.after_ms <= turn.claimed_at + rules.ttl_ms:
        return retry
    return Dead("expired", retry.error or "Nobody could deliver it in time.")
