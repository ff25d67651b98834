"""What follows an attempt that brought no answer: again when, beside whom, or not at all.

Four different things go wrong, and each has a budget of its own:

    what happened                                  what it costs    when it is tried again
    -------------------------------------------    -------------    ------------------------------------------------
    the agent failed or took too long              an attempt       after 1, 10, 60 s, until `max_attempts` failed
    the agent or the platform is away              nothing          after 1, 2, 4 … 60 s, for `ttl_ms`
    the agent or the platform asked for time       nothing          when it said, for `ttl_ms`
    the process died, or the store was away        a lapse          when the lease ends, in smaller company each time

A lapse becomes a failed attempt only if the turn was alone in its process: see `company_of`.
Pauses are drawn between half of what is said here and all of it, so that turns which failed together come back apart.
"""

from typing import Literal

import msgspec
from msgspec.structs import replace

from turntake.rules.conversation import EXPIRED, TIMED_OUT, Answered, Dead, Progress, Retry, SealedTurn, Settlement
from turntake.rules.rules import Rules
from turntake.rules.transitions import WORKER_STOPPED

# The first is for what passes at once, the second for a restart, the third for whatever takes a person's hand.
FAILURE_PAUSES_MS = (1_000, 10_000, 60_000)
# Somebody who is away is asked after a second, then half as often each time, but every minute for as long as it lasts:
# that harms nobody who tries to come back, and people wait no longer than that once somebody is there.
FIRST_AWAY_MS = 1_000
LONGEST_AWAY_MS = 60_000
# Whatever was asked for: a turn that came back at once, again and again, would keep a worker and the store busy.
LEAST_PAUSE_MS = 500
UNREADABLE_ERROR = "A message of this turn is not stored as this release writes it; its bytes are kept as they are."

# A deployment or a lack of memory kills a process once or twice while it answers; three times in a row is a suspicion.
FEW_AFTER, ALONE_AFTER = 2, 3
# How many that lapsed twice run at a time: if one of them is to blame, no more than this have to be tried alone.
FEW = 8

AllowedCompany = Literal["anybody", "few", "nobody"]
"""Beside whom a turn may be tried in one process."""


class Setback(msgspec.Struct, frozen=True):
    """Why an attempt brought no answer."""

    kind: Literal["failed", "timed out", "away", "put off", "given up"]
    error: str
    after_ms: int = 0
    """How long a pause was asked for."""


def backoff_ms(failures: int, chance: float) -> int:
    """The pause after the `failures`-th failure; `chance` is in [0, 1)."""
    return _drawn(FAILURE_PAUSES_MS[min(failures, len(FAILURE_PAUSES_MS)) - 1], chance)


def away_ms(waits: int, chance: float) -> int:
    """The pause after somebody was away once more, having been away `waits` times before."""
    return _drawn(min(FIRST_AWAY_MS * 2 ** min(waits, 16), LONGEST_AWAY_MS), chance)


def after_setback(
    turn: SealedTurn, progress: Progress, rules: Rules, setback: Setback, now: int, chance: float
) -> Settlement:
    """What follows a setback. `turn` is as it was claimed; `progress` is how far its answer was when it happened."""
    # Sending has attempts of its own: once the answer is saved, they count from there.
    if progress.is_final and not turn.progress.is_final:
        turn = replace(turn, failures=0, waits=0)
    match setback.kind:
        case "put off":
            return after_postponement(turn, rules, setback.after_ms, setback.error, now)
        case "given up":
            return Dead("given up", setback.error)
        case "away":
            return after_absence(turn, rules, setback.error, now, chance)
    reason = TIMED_OUT if setback.kind == "timed out" else ""
    return after_failure(turn, rules, setback.error, now, chance, reason)


def after_failure(turn: SealedTurn, rules: Rules, error: str, now: int, chance: float, reason: str = "") -> Settlement:
    """What follows a failed attempt. `turn.failures` counts the failures before this one."""
    failures = turn.failures + 1
    if failures >= rules.max_attempts:
        return Dead(reason or ("failed once" if failures == 1 else f"failed {failures} times"), error)
    return _unless_expired(Retry(backoff_ms(failures, chance), error=error), rules, turn, now)


def after_postponement(turn: SealedTurn, rules: Rules, wait_ms: int, error: str, now: int) -> Settlement:
    """What follows when the agent asks to be called later: the same turn again, at no cost in attempts."""
    return _unless_expired(Retry(max(wait_ms, LEAST_PAUSE_MS), is_failure=False, error=error), rules, turn, now)


def after_absence(turn: SealedTurn, rules: Rules, error: str, now: int, chance: float) -> Settlement:
    """What follows when nobody was there: the same turn again, at no cost in attempts, and a last time at the end."""
    left_ms = turn.claimed_at + rules.ttl_ms - now
    pause_ms = away_ms(turn.waits, chance)
    if left_ms >= LEAST_PAUSE_MS:
        pause_ms = min(pause_ms, left_ms)
    return _unless_expired(Retry(pause_ms, is_failure=False, error=error, is_away=True), rules, turn, now)


def before_attempt(
    turn: SealedTurn, rules: Rules, is_empty: bool = False, is_unreadable: bool = False
) -> Answered | Dead | None:
    """How a claimed turn ends without being tried: all its messages were deleted in time, so that there is nothing to
    answer, or one of them cannot be read, or one lease too many ended without a word."""
    if is_empty and turn.amendments and turn.progress == Progress():
        return Answered()
    if is_unreadable and not turn.progress.is_final:
        return Dead("cannot be read", UNREADABLE_ERROR)
    if turn.failures < rules.max_attempts:
        return None
    verb = "stopped its worker" if turn.error == WORKER_STOPPED else "failed"
    return Dead(f"{verb} {turn.failures} times", turn.error)


def company_of(turn: SealedTurn) -> AllowedCompany:
    """Beside whom a turn may be tried. When a process dies, all turns that it held lapse together, and one of them may
    be the cause. With each lapse they are tried in smaller company, until the one that is to blame dies alone."""
    if turn.lapses < FEW_AFTER:
        return "anybody"
    return "nobody" if turn.lapses >= ALONE_AFTER else "few"


def _drawn(longest_ms: int, chance: float) -> int:
    return int(longest_ms / 2 + chance * longest_ms / 2)


def _unless_expired(retry: Retry, rules: Rules, turn: SealedTurn, now: int) -> Settlement:
    """`ttl_ms` bounds how long a turn is tried, so one that waited through an outage still gets its attempts."""
    if now + retry.after_ms <= turn.claimed_at + rules.ttl_ms:
        return retry
    return Dead(EXPIRED, retry.error or "Nobody could deliver it in time.")
