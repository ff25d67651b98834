"""A worker with too few slots: who is answered first, and what choosing costs where there is nothing to choose."""

import asyncio
from collections import Counter

from turntake.buffer.memory import MemoryStore
from turntake.deliver.turn import Turn
from turntake.rules.fairness import ClaimOrder
from turntake.rules.records import Claim
from turntake.service import TurnTake
from turntake.testing.clock import VirtualClock

AT_ONCE = {"enabled": False}


class Watched(MemoryStore):
    """Notes how it was asked."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.asked: list[tuple[int, bool]] = []

    async def claim(self, limit: int, lease_ms: int, order: ClaimOrder | None = None) -> list[Claim]:
        self.asked.append((limit, order is not None))
        return await super().claim(limit, lease_ms, order)


class Agent:
    """Answers when it is told to, and notes who came in which order."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.done = asyncio.Event()

    async def __call__(self, turn: Turn) -> None:
        self.seen.append(turn.conversation.tenant + ":" + turn.conversation.conversation)
        await self.done.wait()

    async def let_go(self, clock: VirtualClock) -> None:
        """Those who are being answered are; whoever comes next waits again."""
        self.done.set()
        self.done = asyncio.Event()
        await clock.advance(100)


async def say(turns: TurnTake, name: str, tenant: str = "") -> None:
    await turns.receive("hello", conversation=name, id="m1", tenant=tenant)


async def test_one_tenant_without_priorities_is_claimed_as_ever() -> None:
    """Every free slot is asked for, and nobody reads who else is due."""
    clock, agent = VirtualClock(), Agent()
    store = Watched(clock)
    async with TurnTake(store, rules=AT_ONCE, agent=agent, concurrency=4, clock=clock, shutdown_ms=0) as turns:
        for number in range(9):
            await say(turns, f"c{number}")
        await clock.advance(100)
        await agent.let_go(clock)
    assert {limit for limit, _ in store.asked} <= {1, 2, 3, 4}
    assert max(limit for limit, _ in store.asked) == 4
    assert not any(is_ordered for _, is_ordered in store.asked)


async def test_a_high_priority_is_answered_first() -> None:
    clock, agent = VirtualClock(), Agent()
    vip = {"conversation": {"default:generic:default:vip": {"priority": 5}}}
    async with TurnTake(
        MemoryStore(clock), rules=AT_ONCE | vip, agent=agent, concurrency=2, clock=clock, shutdown_ms=0
    ) as turns:
        for name in ("a", "b", "c", "d", "vip"):
            await say(turns, name)
            await clock.advance(10)
        await agent.let_go(clock)
    assert agent.seen == ["default:a", "default:b", "default:vip", "default:c"]


async def test_a_quiet_tenant_finds_a_slot_beside_a_noisy_one() -> None:
    """The noisy one has all but a tenth of the slots, so that the other's turn waits for nobody's answer."""
    clock, agent = VirtualClock(), Agent()
    store = Watched(clock)
    async with TurnTake(store, rules=AT_ONCE, agent=agent, concurrency=20, clock=clock, shutdown_ms=0) as turns:
        await say(turns, "first", "noisy")
        await clock.advance(100)
        await asyncio.gather(*(say(turns, f"c{number:02}", "noisy") for number in range(100)))
        await clock.advance(100)
        assert Counter(name.split(":")[0] for name in agent.seen) == {"noisy": 18}
        asked = len(store.asked)
        await clock.advance(1_000)
        assert len(store.asked) - asked <= 50, "one that waits for its share keeps nobody busy"
        await say(turns, "hello", "quiet")
        await clock.advance(1)
        assert agent.seen[-1] == "quiet:hello"
        await agent.let_go(clock)
        assert Counter(name.split(":")[0] for name in agent.seen) == {"noisy": 36, "quiet": 1}


async def test_tenants_share_slots_as_the_rules_say() -> None:
    clock, agent = VirtualClock(), Agent()
    rules = AT_ONCE | {"tenant": {"large": {"share": 300}, "small": {}}}
    async with TurnTake(
        MemoryStore(clock), rules=rules, agent=agent, concurrency=8, clock=clock, shutdown_ms=0
    ) as turns:
        for number in range(60):
            await say(turns, f"c{number}", "small")
            await say(turns, f"c{number}", "large")
        await agent.let_go(clock)
        agent.seen.clear()
        for _ in range(5):
            await agent.let_go(clock)
        assert Counter(name.split(":")[0] for name in agent.seen) == {"large": 30, "small": 10}


async def test_a_tenant_answers_no_more_turns_at_a_time_than_its_rule_says() -> None:
    clock, agent = VirtualClock(), Agent()
    rules = AT_ONCE | {"tenant": {"acme": {"tenant_turns": 2}}}
    async with TurnTake(
        MemoryStore(clock), rules=rules, agent=agent, concurrency=10, clock=clock, shutdown_ms=0
    ) as turns:
        for number in range(5):
            await say(turns, f"c{number}", "acme")
        await say(turns, "other")
        await clock.advance(100)
        assert sorted(agent.seen) == ["acme:c0", "acme:c1", "default:other"]
        await agent.let_go(clock)
        assert len(agent.seen) == 5


async def test_after_a_rush_turns_are_claimed_as_before() -> None:
    """Once nobody waits, the store is asked for the earliest again."""
    clock, agent = VirtualClock(), Agent()
    store = Watched(clock)
    async with TurnTake(store, rules=AT_ONCE, agent=agent, concurrency=10, clock=clock, shutdown_ms=0) as turns:
        for number in range(30):
            await say(turns, f"c{number}", "acme")
        await clock.advance(100)
        for _ in range(6):
            await agent.let_go(clock)
        assert len(agent.seen) == 30
        store.asked.clear()
        await say(turns, "later", "acme")
        await clock.advance(100)
        await say(turns, "latest", "acme")
        await clock.advance(100)
        assert store.asked[-1] == (4, False)
