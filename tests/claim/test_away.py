"""An agent or a platform that is away for a while: nobody's answer is lost, and nobody is called all the time."""

from collections import Counter
from itertools import pairwise

import pytest
from msgspec.structs import replace

from harness.turns import ADA, AT_ONCE, only_turn, say
from turntake import Away, ConversationKey, Message, Rules, Turn, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.claim import breakers
from turntake.claim.breakers import Breakers, agent_of
from turntake.deliver.outbound import Outbound
from turntake.errors import FateUnknown, SendFailed
from turntake.platforms.replies import Recipient
from turntake.rules.breaker import OPEN_AFTER
from turntake.rules.records import Append
from turntake.testing.clock import VirtualClock


class Restarting:
    """An agent that is away until a time."""

    def __init__(self, clock: VirtualClock, back_at: int) -> None:
        self._clock = clock
        self._back_at = back_at
        self.calls: Counter[str] = Counter()
        self.in_vain = 0
        self.answered_at: dict[str, int] = {}

    async def __call__(self, turn: Turn) -> str:
        self.calls[turn.id] += 1
        if self._clock.now() < self._back_at:
            self.in_vain += 1
            raise Away("The agent could not be reached: ConnectError")
        self.answered_at[turn.id] = self._clock.now()
        return "hello"


@pytest.mark.parametrize("away_ms", [3_000, 5_000, 10_000, 30_000])
async def test_an_agent_that_restarts_costs_nobody_an_answer(
    clock: VirtualClock, store: MemoryStore, away_ms: int
) -> None:
    """A hundred turns fall due meanwhile. All are answered soon after it is back, and it was not called for each."""
    start = clock.now()
    agent = Restarting(clock, start + away_ms)
    async with TurnTake(store, agent=agent, clock=clock) as turns:
        for person in range(100):
            await say(turns, "hello", to=f"p{person}")
            await clock.advance(away_ms // 100)
        await clock.advance(60_000)
        letters = await store.letters.list(10)
    assert letters.items == ()
    assert len(agent.answered_at) == 100
    # The last probe came at most as long before it was back as it had been away by then, and at most ten seconds.
    assert max(agent.answered_at.values()) <= start + away_ms + min(away_ms, 10_000) + 2_000
    assert agent.in_vain <= OPEN_AFTER + away_ms // 1_000


async def test_an_absence_costs_no_attempt(clock: VirtualClock, store: MemoryStore) -> None:
    """Its pauses grow to a minute, and end with the turn's time to live."""
    calls = []

    async def answer(turn: Turn) -> None:
        calls.append(clock.now())
        raise Away

    async with TurnTake(store, rules=Rules(silence_ms=0, ttl_ms=600_000), agent=answer, clock=clock) as turns:
        await say(turns, "hello")
        await clock.advance(300_000)
        record = await only_turn(turns)
        assert record.turn is not None
        assert (record.status, record.turn.failures) == ("answering", 0)
        await clock.advance(310_000)
        (letter,) = (await store.letters.list(10)).items
    pauses = [later - earlier for earlier, later in pairwise(calls)]
    assert all(500 <= pause <= 70_000 for pause in pauses)
    assert pauses[0] <= 1_000
    assert max(pauses) >= 30_000
    assert letter.reason == "expired"
    assert calls[-1] - calls[0] >= 590_000, "the last try is at the end of its time"


async def test_turns_that_wait_for_an_agent_are_not_claimed_all_the_time(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """A minute away, a hundred turns: some hundred claims, not thousands. None of them counts as an attempt."""
    claims = 0
    claim_of = store.claim

    async def counted(limit: int, lease_ms: int, order: object = None):  # type: ignore[no-untyped-def]
        nonlocal claims
        taken = await claim_of(limit, lease_ms)
        claims += len(taken)
        return taken

    store.claim = counted  # type: ignore[method-assign]
    agent = Restarting(clock, clock.now() + 60_000)
    attempts = set()

    async def answer(turn: Turn) -> str:
        attempts.add(turn.attempt)
        return await agent(turn)

    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        for person in range(100):
            await say(turns, "hello", to=f"p{person}")
        await clock.advance(80_000)
    assert len(agent.answered_at) == 100
    assert claims < 2_000
    assert max(attempts) <= OPEN_AFTER + 20


class Platform(Outbound):
    """Does what it is told to, for each channel."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.sent: list[tuple[str, int, int]] = []
        self.calls = 0
        self.back_at = 0
        self.hangs = ""

    def can_send(self, key: ConversationKey) -> bool:
        return True

    async def send(self, to: Recipient, index: int, text: str) -> str:
        self.calls += 1
        if to.key.channel == self.hangs:
            await self._clock.sleep(8_000)
            raise FateUnknown
        if self._clock.now() < self.back_at:
            raise SendFailed("The platform failed (502).")
        self.sent.append((to.key.conversation, index, self._clock.now()))
        return ""


async def test_a_platform_that_is_away_for_minutes_gets_every_saved_answer(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """The agent is asked once for each turn, whatever happens to its answer."""
    asked: Counter[str] = Counter()

    async def answer(turn: Turn) -> str:
        asked[turn.id] += 1
        return "hello"

    platform = Platform(clock)
    platform.back_at = clock.now() + 300_000
    async with TurnTake(store, rules=AT_ONCE, agent=answer, outbound=platform, clock=clock) as turns:
        for person in range(100):
            await say(turns, "hello", to=f"p{person}")
            await clock.advance(1_000)
        await clock.advance(230_000)
        assert (await store.letters.list(10)).items == ()
    assert set(asked.values()) == {1}
    assert len({person for person, _, _ in platform.sent}) == len(platform.sent) == 100
    assert platform.calls < 100 + 60


async def test_a_platform_that_hangs_holds_up_its_own_answers_only(clock: VirtualClock, store: MemoryStore) -> None:
    """Telegram takes eight seconds for nothing, five turns a second come in for it, and one for WhatsApp.

    Its answers alone would take 40 of the 25 slots.
    """

    async def answer(turn: Turn) -> str:
        return "hello"

    platform = Platform(clock)
    platform.hangs = "telegram"
    asked_at = {}
    options = {"concurrency": 25, "shutdown_ms": 1}
    async with TurnTake(store, rules=AT_ONCE, agent=answer, outbound=platform, clock=clock, **options) as turns:  # type: ignore[arg-type]
        for number in range(120):
            key = ConversationKey.of(f"t{number}", channel="telegram")
            await turns.receive("hello", conversation=key.conversation, channel="telegram", id="m1")
            if number % 5 == 0:
                asked_at[f"w{number}"] = clock.now()
                await turns.receive("hello", conversation=f"w{number}", channel="whatsapp", id="m1")
            await clock.advance(200)
    late = [at - asked_at[person] for person, _, at in platform.sent]
    assert len(late) == 24
    assert max(late) < 1_000


async def test_a_place_to_send_from_is_waited_for(clock: VirtualClock, store: MemoryStore) -> None:
    """Many answers at once through one account, each of which takes a moment: all leave, in their turn."""

    class Slow(Platform):
        async def send(self, to: Recipient, index: int, text: str) -> str:
            await self._clock.sleep(400)
            return await super().send(to, index, text)

    async def answer(turn: Turn) -> str:
        return "hello"

    platform = Slow(clock)
    async with TurnTake(store, rules=AT_ONCE, agent=answer, outbound=platform, concurrency=500, clock=clock) as turns:
        for person in range(500):
            await say(turns, "hello", to=f"p{person}")
        await clock.advance(20_000)
    assert len(platform.sent) == 500


async def test_an_agent_that_fails_is_there(clock: VirtualClock, store: MemoryStore) -> None:
    """An agent that fails is there: its failures open no breaker, and cost attempts."""

    async def answer(turn: Turn) -> None:
        raise RuntimeError("no model")

    async with TurnTake(store, rules=AT_ONCE, agent=answer, clock=clock) as turns:
        for person in range(20):
            await say(turns, "hello", to=f"p{person}")
        await clock.advance(30_000)
        letters = (await store.letters.list(100)).items
    assert {letter.reason for letter in letters} == {"failed 3 times"}
    assert len(letters) == 20


async def test_agents_that_somebody_made_up_are_forgotten(
    clock: VirtualClock, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message may name any agent, and nobody is there for any of them: that takes up a bounded room."""
    monkeypatch.setattr(breakers, "MOST_BREAKERS", 20)
    monkeypatch.setattr(breakers, "REMEMBERED", 50)
    await store.append([Append(ADA, Message("m1", "hi"), AT_ONCE)])
    (claim,) = await store.claim(1, 60_000)
    known = Breakers(store, lambda: None)
    for number in range(200):
        last = replace(claim, turn=replace(claim.turn, id=f"turn_{number}", agent=f"agent {number}"))
        known.missed(agent_of, last)
    assert (len(known._breakers), len(known._waiting)) == (20, 20)
    for number in range(100):
        known.missed(agent_of, replace(last, turn=replace(last.turn, id=f"turn_{200 + number}")))
    assert (len(known._breakers), len(known._waiting)) == (20, 50)
    known.reached(agent_of, last)
    assert (len(known._breakers), len(known._waiting)) == (19, 19)
    known.close()
