"""A worker with too few slots: who is answered first, and what choosing costs where there is nothing to choose."""

import asyncio
from collections import Counter

from harness.fake_outbound import Postbox
from turntake.buffer.memory import MemoryStore
from turntake.deliver.turn import Turn
from turntake.platforms.replies import Recipient
from turntake.rules.fairness import ClaimOrder
from turntake.rules.live import Said
from turntake.rules.records import Claim
from turntake.rules.scopes import DEFAULT
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


async def test_a_limit_of_turns_counts_for_everybody_and_from_the_moment_it_is_set() -> None:
    clock, agent = VirtualClock(), Agent()
    async with TurnTake(
        MemoryStore(clock), rules=AT_ONCE, agent=agent, concurrency=10, clock=clock, shutdown_ms=0
    ) as turns:
        await say(turns, "first")
        await clock.advance(100)
        for most in (2, 4):
            await turns.rule_keeper.change({DEFAULT: Said({"tenant_turns": most})}, "ann")
            for number in range(3):
                await say(turns, f"c{most}{number}")
            await clock.advance(100)
            assert len(agent.seen) == most


async def test_tenants_that_were_seen_are_known_after_a_change_of_the_rules() -> None:
    """Though no rule names them: half of the free slots are asked for, and the rest is left to whoever is next."""
    clock, agent = VirtualClock(), Agent()
    store = Watched(clock)
    async with TurnTake(store, rules=AT_ONCE, agent=agent, concurrency=10, clock=clock, shutdown_ms=0) as turns:
        await say(turns, "first", "acme")
        await clock.advance(100)
        await turns.rule_keeper.change({DEFAULT: Said({"capacity": 9})}, "ann")
        store.asked.clear()
        await say(turns, "second", "acme")
        await clock.advance(100)
    assert store.asked[0] == (4, False)


async def test_what_a_tenant_took_before_counts_at_the_next_claim() -> None:
    clock, agent = VirtualClock(), Agent()
    async with TurnTake(
        MemoryStore(clock), rules=AT_ONCE, agent=agent, concurrency=1, clock=clock, shutdown_ms=0
    ) as turns:
        for number in range(6):
            await say(turns, f"c{number}", "noisy")
            await clock.advance(10)
        await say(turns, "hello", "quiet")
        for _ in range(3):
            await agent.let_go(clock)
    assert "quiet:hello" in agent.seen[:3]


class Slow(Postbox):
    """Takes five seconds for each reply."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    async def send(self, to: Recipient, index: int, text: str) -> str:
        await self._clock.sleep(5_000)
        return await super().send(to, index, text)


async def test_an_answer_on_its_way_out_is_no_turn_that_runs() -> None:
    clock, seen = VirtualClock(), []

    async def answer(turn: Turn) -> str:
        seen.append(turn.conversation.conversation)
        return "hi"

    rules = AT_ONCE | {"tenant": {"acme": {"tenant_turns": 1}}}
    async with TurnTake(MemoryStore(clock), rules=rules, agent=answer, outbound=Slow(clock), clock=clock) as turns:
        for name in ("c0", "c1"):
            await say(turns, name, "acme")
        await clock.advance(1_000)
        assert seen == ["c0", "c1"]
        await clock.advance(10_000)


async def test_an_order_asks_for_agents_only_where_they_have_priorities() -> None:
    """The store has to read rows for that."""
    is_by_agent = []

    class Asked(MemoryStore):
        async def claim(self, limit: int, lease_ms: int, order: ClaimOrder | None = None) -> list[Claim]:
            if order is not None:
                is_by_agent.append(order.is_by_agent)
            return await super().claim(limit, lease_ms, order)

    for scope in ({"agent": {"sales": {"priority": 5}}}, {"priority": 5, "agent": {"sales": {"capacity": 5}}}):
        clock = VirtualClock()
        store = Asked(clock)
        rules = AT_ONCE | scope
        async with TurnTake(store, rules=rules, agent=Agent(), concurrency=1, clock=clock, shutdown_ms=0) as turns:
            await say(turns, "ann")
            await clock.advance(100)
        assert set(is_by_agent) == {"priority" not in scope}
        is_by_agent.clear()
