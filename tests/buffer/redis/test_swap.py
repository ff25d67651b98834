"""Many processes that write to the same conversations at once."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from harness.databases import Valkey
from harness.redis_store import backend_of, shard_of, watched
from harness.writing import ROOMY, key
from turntake.buffer.redis.backend import RedisStore
from turntake.rules.conversation import Answered, Dead, Retry
from turntake.rules.records import Claim
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import LEASE_MS, OFF, ids_of, open_ids, say, take


async def counted(server: Valkey, work: Callable[[], Awaitable[object]]) -> int:
    """The most arguments of any command given meanwhile, in a script or not."""
    with watched(server) as seen:
        await work()
    return max(len(command.words) for command in seen)


# Many at once.


def in_threads(count: int, work: Callable[[int], Awaitable[None]]) -> None:
    """Each on an event loop of its own; an error in any is ours."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            asyncio.run(work(number))  # type: ignore[arg-type]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("conversations", [1, 3])
def test_sixteen_writers_make_no_hole_and_lose_nothing(url: str, conversations: int) -> None:
    """Each sends its own messages and one that all send; then all sixteen claim, and each turn has one winner."""
    writers, each = 16, 15
    statuses: Counter[str] = Counter()
    winners: list[Claim] = []
    together = threading.Barrier(writers, timeout=60)

    async def write(writer: int) -> None:
        async with RedisStore.open(url, VirtualClock()) as store:
            together.wait()
            for number in range(each):
                mine = key((writer + number) % conversations)
                statuses[(await say(store, f"{writer}-{number}", key=mine, rules=ROOMY)).status] += 1
                statuses[(await say(store, f"all-{number}", key=key(0), rules=ROOMY)).status] += 1
            store.clock.not_before(store.clock.now() + 60_000)
            together.wait()
            winners.extend(await store.claim(5, LEASE_MS))

    in_threads(writers, write)
    assert statuses == {"buffered": writers * each + each, "duplicate": (writers - 1) * each}
    assert sorted(claim.key for claim in winners) == sorted(key(number) for number in range(conversations))
    for claim in winners:
        seqs = [message.seq for message in claim.messages]
        assert sorted(seqs) == list(range(1, len(seqs) + 1))
    ids = [message.id for claim in winners for message in claim.messages]
    assert len(ids) == len(set(ids)) == writers * each + each


def counting(store: RedisStore, refused: Counter[str]) -> None:
    """Notes how many drafts were written and refused."""
    backend, swap = backend_of(store), backend_of(store).swap

    async def counted(*args: Any) -> Any:
        answers = await swap(*args)
        refused["refused"] += sum(answer is not None for answer in answers)
        refused["taken"] += sum(answer is None for answer in answers)
        return answers

    backend.swap = counted  # type: ignore[assignment,method-assign]


class Crowd:
    """Processes that talk in one conversation, and answer in it, at once. Some die, some are late, some try again."""

    def __init__(self, seed: int, clock: VirtualClock) -> None:
        self._chance = random.Random(seed)
        self._clock = clock
        self.said: list[str] = []
        self.answered: list[Claim] = []

    async def act(self, store: RedisStore, number: int) -> None:
        for each in range(25):
            if self._chance.random() < 0.6:
                await self._say(store, f"{number}-{each}")
            else:
                for claim in await store.claim(2, LEASE_MS):
                    await self._finish(store, claim)

    async def drain(self, store: RedisStore) -> None:
        """Whatever is left is answered."""
        self._clock.stall(2 * LEASE_MS)
        while claims := await store.claim(5, LEASE_MS):
            for claim in claims:
                assert await store.settle(claim, Answered())
                self.answered.append(claim)

    async def _say(self, store: RedisStore, message_id: str) -> None:
        assert (await say(store, message_id, rules=OFF)).status == "buffered"
        self.said.append(message_id)
        assert (await say(store, self._chance.choice(self.said), rules=OFF)).status == "duplicate"

    async def _finish(self, store: RedisStore, claim: Claim) -> None:
        way = self._chance.random()
        if way < 0.2:
            self._clock.stall(LEASE_MS)
        if way < 0.1:
            return
        if 0.2 < way < 0.3:
            await store.settle(claim, Retry(0))
        elif await store.settle(claim, Answered()):
            self.answered.append(claim)


@pytest.mark.parametrize("seed", range(3))
async def test_eight_stores_on_one_conversation_answer_each_message_once(
    url: str, clock: VirtualClock, seed: int
) -> None:
    """Appends, repeats, claims, deaths, retries and late settlements: nothing is lost, nothing is answered twice."""
    crowd, refused = Crowd(seed, clock), Counter[str]()
    async with AsyncExitStack() as stores:
        opened = [await stores.enter_async_context(RedisStore.open(url, clock)) for _ in range(8)]
        for store in opened:
            counting(store, refused)
        await asyncio.gather(*(crowd.act(store, number) for number, store in enumerate(opened)))
        await crowd.drain(opened[0])
        assert await opened[0].rebuild() == 0, "the index was right all the time"
    assert sorted(message_id for claim in crowd.answered for message_id in ids_of(claim)) == sorted(crowd.said)
    assert len({claim.turn.id for claim in crowd.answered}) == len(crowd.answered)
    assert refused["refused"] > 20, "they did meet"


async def test_a_letter_is_ended_once_whoever_asks(server: Valkey, url: str, clock: VirtualClock) -> None:
    """Eight operators press retry or discard at the same moment, while its person goes on writing."""
    async with AsyncExitStack() as stores:
        opened = [await stores.enter_async_context(RedisStore.open(url, clock)) for _ in range(8)]
        await say(opened[0], "m1", rules=OFF)
        claim = await take(opened[0])
        await opened[0].settle(claim, Dead("no"))
        retries = [store.letters.retry(claim.turn.id) for store in opened[:4]]
        discards = [store.letters.discard(claim.turn.id) for store in opened[4:]]
        answers = await asyncio.gather(*retries, *discards, *(say(one, f"n{n}") for n, one in enumerate(opened)))
        ended = [bool(answer) for answer in answers[:8]]
        assert sum(ended) == 1
        is_back = any(ended[:4])
        assert sorted(await open_ids(opened[0])) == (["m1"] if is_back else []) + [f"n{n}" for n in range(8)]
        assert (await opened[0].letters.list(5)).items == ()
        assert server.ask("ZCARD", shard_of(opened[0]).letters) == 0
        assert await opened[0].rebuild() == 0
