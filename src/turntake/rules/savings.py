"""What collecting messages saved, in sums: pure additions, which a process makes as turns end.

Without a buffer every message would be a call to the agent. With it a turn is one call, and one that was interrupted is
a call that was thrown away. What that costs is time: from a turn's last message until its wait was over.

How the sums of many processes come together: the installation has slots, numbered from 0, and a process that has
something to add takes the first one that nobody holds. It adds to what it found there, so a slot outlives its holders,
the sum of all slots is the sum of everything ever counted, and there are no more slots than processes at one time.
"""

from collections.abc import Iterable, Mapping
from typing import Self

import msgspec

from turntake.rules.records import Claim

SLOT_GONE_MS = 60_000
"""A slot that nobody wrote to for six writes may be taken: its holder is gone, or had nothing to add, and then it takes
another when it has."""
MOST_TENANTS = 1_000
"""Those that one slot tells apart, some 50 kB of them. What is beyond counts in the total alone, under `OTHERS`."""
OTHERS = ""
"""No tenant is called so."""


class Sums(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of turns that are over: how many were answered, with how many messages, and how long those waited for more.

    `interrupted` is how often a message stopped an answer, which was a call for nothing. `failed` are attempts that
    will be made again, `dead` turns that became dead letters.
    """

    turns: int = 0
    messages: int = 0
    interrupted: int = 0
    added_ms: int = 0
    failed: int = 0
    dead: int = 0

    def __add__(self, other: Self) -> "Sums":
        return Sums(
            self.turns + other.turns,
            self.messages + other.messages,
            self.interrupted + other.interrupted,
            self.added_ms + other.added_ms,
            self.failed + other.failed,
            self.dead + other.dead,
        )

    def __neg__(self) -> "Sums":
        return Sums(-self.turns, -self.messages, -self.interrupted, -self.added_ms, -self.failed, -self.dead)

    @property
    def calls_avoided(self) -> int:
        """Each message would have been a call; each turn was one, and so was each interrupted one."""
        return max(0, self.messages - self.turns - self.interrupted)


ByTenant = Mapping[str, Sums]
NOTHING = Sums()


class SavingsSlot(msgspec.Struct, frozen=True):
    """One part of the sums, as the store keeps it. It began at `since`; `holder` wrote it at `at`."""

    holder: str = ""
    at: int = 0
    since: int = 0
    sums: dict[str, Sums] = {}

    def is_free(self, now: int) -> bool:
        """Whether nobody holds it any more."""
        return not self.holder or now - self.at > SLOT_GONE_MS


class Savings(msgspec.Struct, frozen=True):
    """What was counted since an instant."""

    since: int
    by_tenant: dict[str, Sums]

    @property
    def total(self) -> Sums:
        return total(self.by_tenant)


def of_answered(claim: Claim) -> Sums:
    """What an answered turn adds. Nothing if nobody was asked: all its messages were deleted in time, or its answer was
    counted before, and is only sent again because the platform did not deliver it."""
    if not claim.messages or claim.turn.resent:
        return NOTHING
    turn = claim.turn
    return Sums(turns=1, messages=len(claim.messages), added_ms=max(0, turn.due.at - turn.last_at))


def add_up(parts: Iterable[ByTenant]) -> dict[str, Sums]:
    """The parts together, tenant by tenant; who has nothing left is left out."""
    sums: dict[str, Sums] = {}
    for part in parts:
        for tenant, more in part.items():
            sums[tenant] = sums.get(tenant, NOTHING) + more
    return {tenant: each for tenant, each in sums.items() if each != NOTHING}


def less(whole: ByTenant, part: ByTenant) -> dict[str, Sums]:
    """The whole without the part."""
    return add_up((whole, {tenant: -sums for tenant, sums in part.items()}))


def total(sums: ByTenant) -> Sums:
    """That of all tenants."""
    return sum(sums.values(), NOTHING)


def bounded(sums: ByTenant, most: int = MOST_TENANTS) -> dict[str, Sums]:
    """The same in total, with the tenants of the most turns told apart, and all others together."""
    if len(sums) <= most:
        return dict(sums)
    by_turns = sorted(sums.items(), key=lambda item: (item[0] != OTHERS, item[1].turns), reverse=True)
    kept, others = dict(by_turns[: most - 1]), dict(by_turns[most - 1 :])
    return {**kept, OTHERS: total(others)}
