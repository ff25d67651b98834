"""Who is claimed first when more is due than there are slots for: shares between tenants, and priorities.

How this works: due conversations stand in lanes, one for each tenant and priority, each in the order of its deadlines.
Claims are picked one after the other, each in two steps.

1. The tenant. Each has a count of what it took, which grows by less for a larger `share`; the tenant with the smallest
   count is next (start-time fair queueing). Who had nothing due for a while gets nothing for that: its count is raised
   to the smallest of those who have. A turn of high priority counts as if its tenant had taken a few turns less, so
   that it goes before others, until its tenant is so far ahead of its share. So a noisy tenant delays nobody else,
   and one that gives everybody a high priority wins nothing in the long run.
2. The turn, among those of that tenant: by priority, then by deadline. Whoever waited `AGEING_MS` longer counts as one
   step higher, so that nobody waits for ever behind others.

Everything else that is due waits where it is, and is picked from again at the next claim. While there are slots enough,
all that is due is claimed, and none of this is asked.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from turntake.rules.key import ConversationKey
from turntake.rules.rules import Rules
from turntake.rules.scopes import RulesFor

# Long enough that a step of priority means something while a queue of seconds builds up, short enough that a queue of
# minutes does not leave those at the bottom waiting till its end.
AGEING_MS = 10_000
# By so many turns a step of priority lets a tenant run ahead of its share: a handful of important people go first, and
# a tenant with nobody else is back in line after a moment.
AHEAD_TURNS = 5
# What a turn adds to the count of a tenant whose share is 1. Divided by any share that is allowed it is exact to 1 %.
WHOLE = 1_000_000
# Of ten slots one tenant leaves one to others, so that theirs need not wait until one of its answers ends.
RESERVED_PART = 10
# Counts that are kept at most. Those that say nothing any more go first; if that is not enough, all begin anew.
MOST_COUNTS = 10_000


_USUAL = Rules()


class Lane(NamedTuple):
    """Conversations of one tenant that have the same priority.

    `share` is the tenant's, and `most` is how many of its turns may run at a time (0: as many as there is room for).
    """

    tenant: str
    priority: int = _USUAL.priority
    share: int = _USUAL.share
    most: int = _USUAL.tenant_turns

    @classmethod
    def of(cls, key: ConversationKey, rules: Rules) -> "Lane":
        return cls(key.tenant, rules.priority, rules.share, rules.tenant_turns)


class DueTurn(NamedTuple):
    """A conversation that is due. They sort by deadline; a tie goes by the key."""

    due_at: int
    name: str
    """The spelling of its key."""
    key: ConversationKey


Lanes = Mapping[Lane, list[DueTurn]]
"""Due conversations by lane, in order."""


class ClaimOrder(Protocol):
    """What a store asks when there is more due than it may claim."""

    is_by_agent: bool
    """Whether the lane depends on the conversation's agent, which only its row tells."""

    def lane_of(self, key: ConversationKey, agent: str) -> Lane: ...

    def first(self, lanes: Lanes, limit: int) -> list[DueTurn]:
        """Up to `limit` that are to be claimed, the most urgent first. Some may have to wait though there is room."""


def in_lanes(due: Iterable[tuple[DueTurn, Lane]]) -> Lanes:
    lanes: dict[Lane, list[DueTurn]] = defaultdict(list)
    for turn, lane in due:
        lanes[lane].append(turn)
    for turns in lanes.values():
        turns.sort()
    return lanes


class Shares:
    """How much each tenant took lately, as one process counts it, and who is next by that."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._least = 0
        """The smallest count of those that had something due."""

    def first(self, lanes: Lanes, limit: int, room: Mapping[str, int] | None = None) -> list[DueTurn]:
        """Up to `limit` turns, in order. Of a tenant that `room` names, at most so many. Nothing is counted yet."""
        room = room or {}
        queues = {tenant: _Queue(own, limit) for tenant, own in _by_tenant(lanes).items() if room.get(tenant, 1) > 0}
        counts = {tenant: self._count(tenant) for tenant in queues}
        self._least = min(counts.values(), default=self._least)
        left = {tenant: room.get(tenant, limit) for tenant in queues}
        line = [(queue.rank(counts[tenant]), tenant) for tenant, queue in queues.items()]
        heapify(line)
        picked: list[DueTurn] = []
        while line and len(picked) < limit:
            _, tenant = heappop(line)
            queue = queues[tenant]
            counts[tenant] += cost(queue.share)
            picked.append(queue.pop())
            left[tenant] -= 1
            if queue and left[tenant] > 0:
                heappush(line, (queue.rank(counts[tenant]), tenant))
        return picked

    def took(self, lane: Lane) -> None:
        """A turn that was picked is claimed."""
        if len(self._counts) >= MOST_COUNTS:
            more = {tenant: count for tenant, count in self._counts.items() if count > self._least}
            self._counts = more if len(more) < MOST_COUNTS else {}
        self._counts[lane.tenant] = self._count(lane.tenant) + cost(lane.share)

    def _count(self, tenant: str) -> int:
        return max(self._counts.get(tenant, 0), self._least)


class FairOrder:
    """The order by the rules that conversations live by, as one process keeps it. `running` are the turns by tenant
    that it answers now, in so many `slots`.

    With `has_tenants` no tenant may take all slots.
    """

    def __init__(self, rules_for: RulesFor, slots: int) -> None:
        self.is_by_agent = False
        self.has_tenants = False
        self.running: Mapping[str, int] = {}
        self.is_short = False
        """Whether the last look saw more than was picked."""
        self._rules_for = rules_for
        self._slots = slots
        self._shares = Shares()

    def lane_of(self, key: ConversationKey, agent: str) -> Lane:
        return Lane.of(key, self._rules_for(key, agent))

    def first(self, lanes: Lanes, limit: int) -> list[DueTurn]:
        most = most_of_one(self._slots) if self.has_tenants else self._slots
        picked = self._shares.first(lanes, limit, room_left(lanes, self.running, most))
        self.is_short = sum(map(len, lanes.values())) > len(picked)
        return picked

    def took(self, key: ConversationKey, agent: str) -> None:
        """A turn that was put first is claimed."""
        self._shares.took(self.lane_of(key, agent))


def cost(share: int) -> int:
    """What one turn adds to a tenant's count."""
    return WHOLE // share


def most_of_one(slots: int) -> int:
    """How many of a process's slots one tenant may take, where there are several tenants."""
    return slots - slots // RESERVED_PART


def room_left(lanes: Iterable[Lane], running: Mapping[str, int], most: int) -> dict[str, int]:
    """How many more turns each tenant of some lanes may take, if none may have more than `most`, or than it may by its
    own rules, and if so many run already."""
    return {lane.tenant: min(most, lane.most or most) - running.get(lane.tenant, 0) for lane in lanes}


class _Queue:
    """What one tenant has due, by priority with ageing. No more than `limit` are looked at."""

    def __init__(self, lanes: Lanes, limit: int) -> None:
        self.share = next(iter(lanes)).share
        self._ahead = AHEAD_TURNS * cost(self.share)
        aged = [
            (turn.due_at - lane.priority * AGEING_MS, turn.name, lane.priority, turn)
            for lane, turns in lanes.items()
            for turn in turns[:limit]
        ]
        self._turns = sorted(aged, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._turns)

    def rank(self, count: int) -> tuple[int, int]:
        """Where the tenant stands with its next turn: what it took, and between equals who is due first."""
        aged_at, _, priority, _ = self._turns[-1]
        return count - priority * self._ahead, aged_at

    def pop(self) -> DueTurn:
        return self._turns.pop()[-1]


def _by_tenant(lanes: Lanes) -> dict[str, dict[Lane, list[DueTurn]]]:
    tenants: dict[str, dict[Lane, list[DueTurn]]] = defaultdict(dict)
    for lane, turns in lanes.items():
        if turns:
            tenants[lane.tenant][lane] = turns
    return tenants
