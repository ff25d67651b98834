"""Whether to try somebody who was away: an agent, or an account at a platform.

A breaker opens when too many calls in a row found nobody there. While it is open, only one call every few seconds is
made, the probe; all other turns wait. The first call that finds somebody closes it.
"""

import msgspec

# One call that fails may be an accident of that call; five in a row, with none that succeeded between, are none.
OPEN_AFTER = 5
# About what a restart takes at least: to ask sooner would find nobody again.
FIRST_PROBE_MS = 1_000
# A call every ten seconds harms nobody who tries to come back, and people wait so much longer at most.
LONGEST_PROBE_MS = 10_000


class Breaker(msgspec.Struct, frozen=True):
    """What is known of one destination. `misses` are the calls in a row that found nobody, the first at `since`."""

    misses: int = 0
    since: int = 0
    probe_at: int = 0

    @property
    def is_open(self) -> bool:
        return self.misses >= OPEN_AFTER


def missed(breaker: Breaker, now: int) -> Breaker:
    """One more call found nobody there."""
    since = breaker.since if breaker.misses else now
    probe_at = breaker.probe_at if breaker.is_open else now + FIRST_PROBE_MS
    return Breaker(breaker.misses + 1, since, probe_at)


def probed(breaker: Breaker, now: int) -> Breaker:
    """A probe is under way, and the next is due after about as long as it is away by now."""
    pause_ms = min(max(now - breaker.since, FIRST_PROBE_MS), LONGEST_PROBE_MS)
    return msgspec.structs.replace(breaker, probe_at=now + pause_ms)


def wait_ms(breaker: Breaker, now: int) -> int:
    """How long to wait before the next call; 0 if one may be made now."""
    return max(breaker.probe_at - now, 0) if breaker.is_open else 0
