"""What the scripts need from a server, and what they leave as it is: keys, arguments, numbers, bytes."""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harness.databases import Valkey
from harness.redis_store import live_a_full_life, shard_of, watched
from harness.writing import ROOMY, key
from turntake.buffer.engine.draft import RANDOM_BITS
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.redis.keys import Shard
from turntake.buffer.redis.scripts import SWAP
from turntake.rules.conversation import Answered, Dead
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, LEASE_MS, OFF, ids_of, say, take

MOST_ARGUMENTS = 3_999


async def test_every_key_a_script_touches_is_declared_and_carries_its_shards_tag(
    server: Valkey, url: str, prefix: str, clock: VirtualClock
) -> None:
    """Undeclared keys, or keys of two slots, work on one server and fail on a cluster."""
    async with RedisStore.open(f"{url}&shards=3", clock) as store:
        with watched(server) as seen:
            await live_a_full_life(store, clock)
    declared: list[str] = []
    scripts = set()
    for command in seen:
        if command.name in ("EVAL", "EVALSHA"):
            count = int(command.words[2])
            declared = command.words[3 : 3 + count]
            scripts.add(command.words[1])
            assert count > 0
            tags = {re.match(rf"{prefix}:\{{s\d\}}:", name)[0] for name in declared}  # type: ignore[index]
            assert len(tags) == 1, declared
        elif command.is_inner and command.name not in ("TIME", "PUBLISH"):
            assert command.words[1] in declared, command
    assert len({script for script in scripts if len(script) == 40}) == 9, "all scripts ran"


async def test_no_command_that_a_managed_server_refuses(server: Valkey, store: RedisStore, clock: VirtualClock) -> None:
    """ElastiCache Serverless has no KEYS and no parameter groups; nothing here looks at all there is at once."""
    with watched(server) as seen:
        await live_a_full_life(store, clock)
    used = {command.name for command in seen}
    assert not used & {"KEYS", "CONFIG", "DEBUG", "FLUSHALL", "FLUSHDB", "HGETALL", "SMEMBERS", "SELECT", "MULTI"}
    for command in seen:
        if not command.is_inner:
            assert len(command.words) <= MOST_ARGUMENTS


async def counted(server: Valkey, work: Callable[[], Awaitable[object]]) -> int:
    """The most arguments of any command given meanwhile, in a script or not."""
    with watched(server) as seen:
        await work()
    return max(len(command.words) for command in seen)


async def test_no_call_has_too_many_arguments_however_many_are_due(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """500 conversations are appended to, claimed, extended, settled, listed and forgotten."""

    async def live() -> None:
        await store.append([Append(key(number), Message("m1", "hi"), OFF) for number in range(500)])
        claims = []
        while some := await store.claim(500, LEASE_MS):
            claims += some
        assert len(claims) == 500
        assert all(await store.extend(claims, LEASE_MS))
        assert all(await asyncio.gather(*(store.settle(claim, Answered()) for claim in claims)))
        server.ask("DEL", shard_of(store).due, shard_of(store).closed)
        assert await store.rebuild() == 1_000
        while await store.history.forget(clock.now() + 1):
            pass

    assert await counted(server, live) <= MOST_ARGUMENTS


@pytest.mark.parametrize(("conversations", "each"), [(1, 500), (1, 2_000), (150, 20), (2, 1_000)])
async def test_no_call_has_too_many_arguments_however_much_was_said(
    server: Valkey, store: RedisStore, clock: VirtualClock, conversations: int, each: int
) -> None:
    """As after a stall, when all that waited is written together; then all of it is claimed, dies and is retried."""
    arrivals = [Append(key(c), Message(f"m{m}", "hi"), ROOMY) for m in range(each) for c in range(conversations)]

    async def live() -> None:
        answers = await store.append(arrivals)
        assert {answer.status for answer in answers} == {"buffered"}
        await clock.advance(60_000)
        for claim in await store.claim(conversations, LEASE_MS):
            assert len(claim.messages) == each
            assert await store.settle(claim, Dead("no"))
        letters = (await store.letters.list(1)).items
        assert await store.letters.retry(letters[0].id)

    assert await counted(server, live) <= MOST_ARGUMENTS


async def test_a_server_that_forgets_its_scripts_is_sent_them_again(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """SCRIPT FLUSH before each verb."""
    await say(store, "m1", rules=OFF)
    server.ask("SCRIPT", "FLUSH")
    claim = await take(store)
    server.ask("SCRIPT", "FLUSH")
    assert await store.extend([claim], LEASE_MS) == [True]
    server.ask("SCRIPT", "FLUSH")
    assert await store.settle(claim, Answered())
    server.ask("SCRIPT", "FLUSH")
    assert await store.rebuild() == 0
    server.ask("SCRIPT", "FLUSH")
    assert await store.history.forget(clock.now() + 1) == 1


async def test_scripts_forgotten_under_load_cost_nothing(server: Valkey, store: RedisStore) -> None:
    """SCRIPT FLUSH again and again while ten conversations are written to."""

    is_over = False

    async def write(number: int) -> int:
        for each in itertools.count(1):
            assert (await say(store, f"m{each}", key=key(number), rules=ROOMY)).seq == each
            if is_over:
                return each
        raise AssertionError

    writing = asyncio.gather(*(write(number) for number in range(10)))
    for _ in range(20):
        await asyncio.to_thread(server.ask, "SCRIPT", "FLUSH")
    is_over = True
    assert min(await writing) > 3


async def test_a_user_who_may_publish_nowhere_can_still_write(
    server: Valkey, url: str, prefix: str, clock: VirtualClock
) -> None:
    """Since Redis 7 that is every new user. A script that fails at its last step leaves what it wrote before."""
    server.ask("ACL", "SETUSER", "app", "on", ">secret", f"~{prefix}:*", "resetchannels", "+@all")
    async with RedisStore.open(url.replace("//", "//app:secret@"), clock) as store:
        assert (await say(store, "m1", rules=OFF)).status == "buffered"
        assert ids_of(await take(store)) == ["m1"]
    assert server.ask("HGET", f"{prefix}:{{s0}}:counts", "messages") == b"1"


async def test_a_user_who_may_not_ask_about_the_server_is_warned_and_served(
    server: Valkey, url: str, prefix: str, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """INFO counts as dangerous, and users of applications often may do nothing dangerous."""
    server.ask("ACL", "SETUSER", "plain", "on", ">secret", f"~{prefix}:*", f"&{prefix}:*", "+@all", "-@dangerous")
    async with RedisStore.open(url.replace("//", "//plain:secret@"), clock) as store:
        await live_a_full_life(store, clock)
    assert "may forget" in caplog.text


# What was said stays as it was said.

STRANGE = [
    Message("\U0001f600", "\U0001f469‍\U0001f467 \x00 \ud7ff \u2028", metadata={"é": "\x00"}),
    Message("big", "x", metadata={"n": 2**63 - 1, "u": 2**64 - 1, "f": 1e300, "neg": -(2**63), "list": [], "map": {}}),
    Message("1e309", "NaN", "inf", 2**53 + 1, metadata={"-0": -0.0, "deep": [[[]], {"a": None}]}),
    Message('"; return redis.error_reply("no")', "\r\n$5\r\nhello\r\n", metadata={"'": "\\"}),
    Message(" with spaces {and} braces\nand lines ", "text"),
    Message("x" * 1_000, "y" * 100_000),
    Message("0", "0"),
    Message("v", "an id that looks like one of our fields"),
]


async def test_lua_never_looks_into_what_was_said(store: RedisStore, clock: VirtualClock) -> None:
    """Numbers beyond 2^53, empty lists, NUL bytes and emoji come back as they were, and known ids are known."""
    answers = await store.append([Append(ANN, message, ROOMY) for message in STRANGE])
    assert {answer.status for answer in answers} == {"buffered"}
    again = await store.append([Append(ANN, message, ROOMY) for message in STRANGE])
    assert {answer.status for answer in again} == {"duplicate"}
    await clock.advance(60_000)
    claim = await take(store)
    by_id = {message.id: message for message in claim.messages}
    for seq, message in enumerate(STRANGE, 1):
        found = by_id[message.id]
        assert (found.seq, found.text, found.metadata) == (seq, message.text, message.metadata)
        assert (found.sender, found.sent_at) == (message.sender, message.sent_at)
    assert await store.settle(claim, Dead("\U0001f600 \x00"))
    (letter,) = (await store.letters.list(5)).items
    assert letter.reason == "\U0001f600 \x00"


async def test_versions_stay_exact_in_lua(server: Valkey, url: str, store: RedisStore, clock: VirtualClock) -> None:
    """Of a conversation that was written to four thousand million times: a Lua number holds 53 bits."""
    await say(store, "m1", rules=OFF)
    row = shard_of(store).conversation(ANN)
    _, rest = server.ask("HGET", row, "s").decode().split(" ", 1)
    server.ask("HSET", row, "s", f"{(2**32 << RANDOM_BITS) + 1} {rest}")
    async with RedisStore.open(url, clock) as other:
        assert (await asyncio.wait_for(say(other, "m2", rules=OFF), 5)).seq == 2
    claim = await take(store)
    assert await store.settle(claim, Answered())
    server.ask("DEL", shard_of(store).due)
    assert await store.rebuild() == 1


async def test_a_name_cannot_choose_its_slot(server: Valkey, url: str, clock: VirtualClock) -> None:
    """Braces in a conversation's name are no hash tag, and a star or a space is no pattern."""
    names = ["{s0}", "}{s1}:due", "{}", "a{b}c", "*", "[a-z]", " ", "~7B", "\U0001f600", "a:b:c", "due", "x" * 256]
    async with RedisStore.open(f"{url}&shards=4", clock) as store:
        for name in names:
            await say(store, "m1", key=ConversationKey.of(name), rules=OFF)
        claims = await store.claim(50, LEASE_MS)
        assert sorted(claim.key.conversation for claim in claims) == sorted(names)
        for claim in claims:
            shard = Shard(url.partition("prefix=")[2], claim.key.shard_hash % 4)
            row = shard.conversation(claim.key)
            assert server.ask("EXISTS", row) == 1
            assert server.ask("CLUSTER", "KEYSLOT", row) == server.ask("CLUSTER", "KEYSLOT", shard.due)
            assert await store.settle(claim, Answered())


@pytest.mark.parametrize(("reached", "is_safe"), [(0, False), (1, False), (2, True), (3, True)])
async def test_a_write_is_safe_once_as_many_replicas_have_it_as_were_asked_for(
    reached: int, is_safe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two is not enough: it may be the one that does not take over."""
    commands: list[tuple[Any, ...]] = []

    async def answered(client: object, key: str, *given: tuple[Any, ...]) -> list[Any]:
        commands.extend(given)
        return ["done", reached]

    monkeypatch.setattr("turntake.buffer.redis.scripts._on_one_connection", answered)
    assert await SWAP.replicated(object(), ["row"], [7], 2, 50) == ("done", is_safe)
    script, wait = commands
    assert (script[0], script[2:], wait) == ("EVALSHA", (1, "row", 7), ("WAIT", 2, 50))
