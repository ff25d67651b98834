"""How a due conversation is reserved, read and claimed, and what may happen in between."""

import asyncio
import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.databases import Cluster, Valkey
from harness.redis_store import backend_of, shard_of
from harness.writing import key
from turntake import Rules
from turntake.buffer.engine.backend import Refusal
from turntake.buffer.engine.draft import Draft
from turntake.buffer.redis import claiming
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.redis.claiming import RESERVED_MS, RedisOffer
from turntake.buffer.redis.keys import Shard
from turntake.buffer.redis.swap import SwapCall
from turntake.buffer.store import HORIZON_MS
from turntake.errors import StoreUnavailable
from turntake.rules.message import Message
from turntake.rules.records import Append, Claim
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, LEASE_MS, OFF, ids_of, open_ids, say, take


async def test_a_claimer_that_died_after_taking_costs_others_a_moment(
    url: str, store: RedisStore, clock: VirtualClock
) -> None:
    """It had put the deadline off and wrote nothing: the next one finds the conversation as it was."""
    await say(store, "m1", rules=OFF)
    async with RedisStore.open(url, clock) as dying, backend_of(dying).offer(1, clock.now()) as offer:
        assert [due.key for due in offer.due] == [ANN]
    assert await store.claim(5, LEASE_MS) == []
    assert await store.next_due() == clock.now() + RESERVED_MS
    await clock.advance(RESERVED_MS)
    claim = await take(store)
    assert (claim.turn.attempt, ids_of(claim)) == (1, ["m1"])
    assert RESERVED_MS < HORIZON_MS


async def test_what_was_due_a_moment_ago_is_not_even_offered(store: RedisStore, clock: VirtualClock) -> None:
    """Its deadline moved between looking and taking: it is not put off, and nobody's deadline changes."""
    answer = await say(store, "m1")
    async with backend_of(store).offer(1, clock.now()) as offer:
        assert await offer._reserve(shard_of(store), [str(ANN)], clock.now()) == []
    assert await store.next_due() == answer.due_at


async def test_what_is_taken_and_then_said_more_to_is_not_claimed_early(
    url: str, store: RedisStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between offering and claiming somebody goes on talking: the claim is refused, and the new deadline stands."""
    await say(store, "m1")
    await clock.advance(1_000)
    async with RedisStore.open(url, clock) as other:
        offered: list[int] = []
        write = backend_of(store)._swapper._write

        async def late(call: SwapCall, replicas: int) -> Any:
            offered.append(len(call.args))
            await say(other, "m2")
            return await write(call, replicas)

        monkeypatch.setattr(backend_of(store)._swapper, "_write", late)
        assert await store.claim(5, LEASE_MS) == []
    assert len(offered) == 1
    due_at = await store.next_due()
    assert due_at is not None
    assert due_at > clock.now()
    assert await open_ids(store) == ["m1", "m2"]


MANY = Rules(capacity=9_999, max_messages=9_999)


async def test_a_claim_waits_for_no_replica(url: str, store: RedisStore, clock: VirtualClock) -> None:
    """Written but reported as failed, it would hold a lease for nobody, again and again, until the turn was dead."""
    await say(store, "m1", rules=OFF)
    async with RedisStore.open(f"{url}&wait=1&wait_ms=20", clock) as careful:
        with pytest.raises(StoreUnavailable, match="replicas"):
            await say(careful, "m2", rules=OFF)
        claim = await take(careful)
        assert ids_of(claim) == ["m1"]
        assert claim.turn.failures == 0


async def test_what_was_claimed_is_handed_out_though_the_next_look_fails(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim looks again while it has room; what it has by then must not wait for the end of its lease."""
    await say(store, "m1", rules=OFF)
    look, looks = RedisOffer._earliest, []

    async def fails_later(offer: RedisOffer, now: int, limit: int) -> Any:
        looks.append(now)
        if len(looks) > 1:
            raise StoreUnavailable
        return await look(offer, now, limit)

    monkeypatch.setattr(RedisOffer, "_earliest", fails_later)
    assert [ids_of(claim) for claim in await store.claim(5, LEASE_MS)] == [["m1"]]
    with pytest.raises(StoreUnavailable):
        await store.claim(5, LEASE_MS)


async def test_a_turn_whose_messages_cannot_be_read_is_handed_back(
    store: RedisStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no failure of the turn's, and somebody else may have it at once."""
    await store.append([Append(ANN, Message(f"m{number}"), MANY) for number in range(claiming.MESSAGES_OFFERED + 1)])
    await clock.advance(60_000)

    async def fails(*given: Any) -> Any:
        raise StoreUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(backend_of(store), "messages", fails)
        assert await store.claim(1, LEASE_MS) == []
    claim = await take(store)
    assert len(claim.messages) == claiming.MESSAGES_OFFERED + 1
    assert claim.turn.failures == 0


async def test_whoever_comes_second_looks_for_the_next_one(
    url: str, store: RedisStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker reserves the earliest between the look and the reservation: there is one more to claim."""
    for number in range(2):
        await say(store, "m1", key=key(number), rules=OFF)
        await clock.advance(1)
    look = RedisOffer._earliest
    async with RedisStore.open(url, clock) as other:

        async def beaten(offer: RedisOffer, now: int, limit: int) -> Any:
            earliest = await look(offer, now, limit)
            monkeypatch.setattr(RedisOffer, "_earliest", look)
            async with backend_of(other).offer(1, now):
                return earliest

        monkeypatch.setattr(RedisOffer, "_earliest", beaten)
        assert [claim.key for claim in await store.claim(1, LEASE_MS)] == [key(1)]


async def test_the_earliest_of_all_shards_are_claimed_and_no_more_than_asked_for(url: str, clock: VirtualClock) -> None:
    """Each shard has its own index; a worker has only so many places, and whoever waited longest gets them."""
    async with RedisStore.open(f"{url}&shards=3", clock) as store:
        for number in range(12):
            await say(store, "m1", key=key(number), rules=OFF)
            await clock.advance(1)
        claims = await store.claim(5, LEASE_MS)
        assert len({backend_of(store).shard_of(claim.key) for claim in claims}) > 1
        assert [claim.key for claim in claims] == [key(number) for number in range(5)]
        assert [claim.key for claim in await store.claim(50, LEASE_MS)] == [key(number) for number in range(5, 12)]


async def test_what_a_shard_did_not_confirm_is_not_ours(
    url: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went away between the offer and the swap. Whoever was claimed in the other shard is handed out."""
    async with RedisStore.open(f"{url}&shards=2", clock) as store:
        people = [key(number) for number in range(8)]
        for person in people:
            await say(store, "m1", key=person, rules=OFF)
        swapper = backend_of(store)._swapper
        swap = swapper.swap

        async def half(shard: Shard, drafts: Sequence[Draft], *more: Any) -> list[Refusal | None]:
            if shard.number == 1:
                raise StoreUnavailable
            return await swap(shard, drafts, *more)

        monkeypatch.setattr(swapper, "swap", half)
        claims = await store.claim(20, LEASE_MS)
        reachable = [person for person in people if backend_of(store).shard_of(person) == 0]
        assert 0 < len(reachable) < len(people)
        assert sorted(str(claim.key) for claim in claims) == sorted(map(str, reachable))


# redis-py drops nodes that left the cluster without closing them.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_one_node_that_is_down_does_not_stop_the_others(tmp_path: Path, clock: VirtualClock) -> None:
    """Whoever lives on the other nodes is still answered."""
    with Cluster(tmp_path, 3, "cluster-require-full-coverage no", is_safe=False) as cluster:
        async with RedisStore.open(f"{cluster.url}?shards=6", clock) as store:
            for number in range(12):
                await say(store, "m1", key=key(number), rules=OFF)
            cluster.nodes[2].kill()
            claims: list[Claim] = []
            async with asyncio.timeout(20):
                while not claims:  # a busy machine may be too late for the first look
                    claims = list(await store.claim(20, LEASE_MS))
            assert 0 < len(claims) < 12
            assert await store.next_due() is not None
    gc.collect()


async def test_a_claim_goes_by_the_row_and_not_by_the_index(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """The index says that a conversation is due, as after a loss on the server: nobody is handed over early, and the
    index is put right on the way."""
    answer = await say(store, "m1")
    server.ask("ZADD", shard_of(store).due, 1, str(ANN))
    assert await store.next_due() == 1
    assert await store.claim(5, LEASE_MS) == []
    assert await store.next_due() == answer.due_at == clock.now() + 1_000
    await clock.advance(1_000)
    assert ids_of(await take(store)) == ["m1"]


async def test_an_entry_that_is_wrong_takes_nobodys_place(server: Valkey, store: RedisStore) -> None:
    """There is one place, and the wrong entry is the earliest: the next one is claimed, and the index put right."""
    answer = await say(store, "m1")
    await say(store, "m1", key=key(1), rules=OFF)
    server.ask("ZADD", shard_of(store).due, 1, str(ANN))
    assert [claim.key for claim in await store.claim(1, LEASE_MS)] == [key(1)]
    assert await store.next_due() == answer.due_at


async def test_an_entry_that_is_wrong_is_put_right_beside_others(server: Valkey, store: RedisStore) -> None:
    answer = await say(store, "m1")
    await say(store, "m1", key=key(1), rules=OFF)
    server.ask("ZADD", shard_of(store).due, 1, str(ANN))
    assert [claim.key for claim in await store.claim(5, LEASE_MS)] == [key(1)]
    assert await store.next_due() == answer.due_at
