"""What Redis and Valkey do to naive designs, and many processes to each other."""

import asyncio
import itertools
import random
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, NamedTuple

import pytest

from harness.databases import HOST, Valkey, until
from harness.proxy import proxying
from turntake import Rules, Turn, TurnTake
from turntake.buffer.engine.draft import LOT_BITS
from turntake.buffer.redis import backend as shelves
from turntake.buffer.redis.backend import BEHIND_MS, RedisShelf
from turntake.buffer.redis.claiming import RESERVED_MS
from turntake.buffer.redis.keys import Shard
from turntake.buffer.redis.scripts import FORGET
from turntake.buffer.redis.store import RedisStore
from turntake.buffer.store import HORIZON_MS, Hint
from turntake.claim.alarm import Alarm
from turntake.clock import SystemClock
from turntake.rules.conversation import Answered, Dead, Progress, Retry, Settlement, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, Claim
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, INTERRUPT, LEASE_MS, OFF, PLAIN, ids_of, open_ids, say, take

MOST_ARGUMENTS = 3_999
ROOMY = Rules(capacity=9_999, max_messages=9_999)
prefixes = (f"t{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("redis"), is_safe=False) as server:
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def prefix() -> str:
    return next(prefixes)


@pytest.fixture
def url(server: Valkey, prefix: str) -> str:
    """A store that nobody used before."""
    return f"{server.url}?prefix={prefix}"


@pytest.fixture
async def store(url: str, clock: VirtualClock) -> AsyncIterator[RedisStore]:
    async with RedisStore.open(url, clock) as store:
        yield store


def shelf_of(store: RedisStore) -> RedisShelf:
    assert isinstance(store.shelf, RedisShelf)
    return store.shelf


def key(number: int) -> ConversationKey:
    return ConversationKey.of(f"c{number}")


class Seen(NamedTuple):
    """A command as the server saw it; `is_inner` if a script gave it."""

    words: list[str]
    is_inner: bool

    @property
    def name(self) -> str:
        return self.words[0].upper()


END = "no more of it"
_LINE = re.compile(rb"^\+\S+ \[(\d+ )([^\]]*)\] (.*)\r\n$", re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')


@contextmanager
def watched(server: Valkey) -> Iterator[list[Seen]]:
    """Every command that the server gets meanwhile, filled in at the end."""
    seen: list[Seen] = []
    with socket.create_connection((HOST, server.port), 10) as line, line.makefile("rb") as lines:
        line.sendall(b"MONITOR\r\n")
        assert lines.readline() == b"+OK\r\n"
        yield seen
        server.ask("ECHO", END)
        for text in lines:
            match = _LINE.match(text)
            assert match, text
            words = [word.decode() for word in _WORD.findall(match[3])]
            if words[-1] == END:
                break
            seen.append(Seen(words, match[2].startswith(b"lua")))


async def live_a_full_life(store: RedisStore, clock: VirtualClock) -> None:
    """Every verb, every script, every outcome, on a few conversations."""
    for number in range(6):
        await say(store, "m1", "m2", "m2", key=key(number), rules=PLAIN)
        await store.touch(key(number), Touch("composing", 100), PLAIN)
    await clock.advance(60_000)
    claims = await store.claim(6, LEASE_MS)
    assert len(claims) == 6
    await say(store, "m3", key=claims[5].key, rules=INTERRUPT)
    await store.extend(claims, LEASE_MS)
    await store.save(claims[0], Progress(("hello",), 0, True))
    settlements: list[Settlement] = [Answered(), Dead("no"), Dead("no"), Retry(10), Dead("no")]
    for claim, settlement in zip(claims[:5], settlements, strict=True):
        assert await store.settle(claim, settlement)
    letters = await store.letters.list(10)
    await store.letters.get(letters.items[0].id)
    await store.letters.retry(letters.items[0].id)
    await store.letters.discard(letters.items[1].id)
    await store.history.turn(claims[0].turn.id)
    await store.history.turns(key(0), 5)
    await store.find(key(0))
    await store.next_due()
    await store.history.forget(clock.now() + 1)
    await store.rebuild()


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
    assert len({script for script in scripts if len(script) == 40}) == 5, "all scripts ran"


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
    server.ask("HSET", row, "s", f"{(2**32 << LOT_BITS) + 1} {rest}")
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
            shard = Shard(url.partition("prefix=")[2], claim.key.place % 4)
            row = shard.conversation(claim.key)
            assert server.ask("EXISTS", row) == 1
            assert server.ask("CLUSTER", "KEYSLOT", row) == server.ask("CLUSTER", "KEYSLOT", shard.due)
            assert await store.settle(claim, Answered())


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
    shelf, swap = shelf_of(store), shelf_of(store).swap

    async def counted(*args: Any) -> Any:
        answers = await swap(*args)
        refused["refused"] += sum(answer is not None for answer in answers)
        refused["taken"] += sum(answer is None for answer in answers)
        return answers

    shelf.swap = counted  # type: ignore[assignment,method-assign]


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


async def test_what_a_retried_letter_held_outlives_its_turn(store: RedisStore, clock: VirtualClock) -> None:
    """Its messages moved on: forgetting the old turn forgets neither them nor their ids."""
    await say(store, "m1", rules=OFF)
    claim = await take(store)
    await store.settle(claim, Dead("no"))
    assert await store.letters.retry(claim.turn.id)
    await clock.advance(1)
    assert await store.history.forget(clock.now()) == 1
    assert await open_ids(store) == ["m1"]
    assert (await say(store, "m1", rules=OFF)).status == "duplicate"
    assert ids_of(await take(store)) == ["m1"]


async def test_a_turn_that_closed_again_meanwhile_is_not_forgotten(
    server: Valkey, store: RedisStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read as old, and is young by the time it would be dropped."""
    await say(store, "m1", rules=OFF)
    claim = await take(store)
    await store.settle(claim, Answered())
    await clock.advance(1_000)

    async def later(*args: Any) -> Any:
        server.ask("ZADD", shard_of(store).closed, clock.now(), claim.turn.id)
        return await FORGET(*args)

    monkeypatch.setattr(shelves, "FORGET", later)
    assert await store.history.forget(clock.now()) == 0
    assert await store.history.turn(claim.turn.id) is not None
    assert (await say(store, "m1", rules=OFF)).status == "duplicate"


# The indexes are derived: what they say can be lost.


def shard_of(store: RedisStore) -> Shard:
    (shard,) = shelf_of(store)._rows.shards
    return shard


async def test_lost_indexes_are_rebuilt_from_the_rows(server: Valkey, store: RedisStore, clock: VirtualClock) -> None:
    """Deadlines, letters, closed turns and each conversation's turns; rebuilding again finds nothing to do."""
    await live_a_full_life(store, clock)
    shard = shard_of(store)
    before = [entries_of(server, name) for name in (shard.due, shard.closed, shard.letters, shard.turns(key(0)))]
    assert all(before[:1])
    entries = sum(map(len, before)) - len(before[3])
    turns = [server.ask("ZCARD", shard.turns(key(number))) for number in range(6)]
    for name in (shard.due, shard.closed, shard.letters, *(shard.turns(key(number)) for number in range(6))):
        server.ask("DEL", name)
    assert await store.next_due() is None
    rebuilt = await store.rebuild()
    after = [entries_of(server, name) for name in (shard.due, shard.closed, shard.letters, shard.turns(key(0)))]
    assert after == before
    assert [server.ask("ZCARD", shard.turns(key(number))) for number in range(6)] == turns
    assert rebuilt == entries + sum(turns)
    assert await store.rebuild() == 0


def entries_of(server: Valkey, name: str) -> list[Any]:
    found: list[Any] = server.ask("ZRANGE", name, 0, -1, "WITHSCORES")
    return found


async def test_wrong_indexes_are_put_right(server: Valkey, store: RedisStore, clock: VirtualClock) -> None:
    """Too early, too late, idle, of nobody; and a letter among the closed, which forgetting would drop."""
    for number in range(3):
        await say(store, "m1", key=key(number))
    await say(store, "m1", rules=OFF)
    claim = await take(store)
    await store.settle(claim, Dead("no"))
    shard = shard_of(store)
    right = entries_of(server, shard.due)
    server.ask("ZADD", shard.due, 1, str(key(0)), "+inf", str(key(1)), 2**50, str(key(2)))
    server.ask("ZADD", shard.due, 5, str(key(99)))
    server.ask("ZADD", shard.closed, 5, claim.turn.id)
    server.ask("ZADD", shard.letters, 5, f"turn_{'0' * 20}")
    assert await store.rebuild() == 6
    assert entries_of(server, shard.due) == right
    assert entries_of(server, shard.closed) == []
    assert [letter.id for letter in (await store.letters.list(5)).items] == [claim.turn.id]
    assert await store.rebuild() == 0


async def test_an_entry_whose_row_is_gone_rings_once_and_no_more(
    server: Valkey, store: RedisStore, clock: VirtualClock
) -> None:
    """As after a loss on the server: workers must not wake for it twice a second for ever."""
    server.ask("ZADD", shard_of(store).due, 5, str(ANN))
    assert await store.claim(5, LEASE_MS) == []
    await clock.advance(RESERVED_MS)
    assert await store.claim(5, LEASE_MS) == []
    assert await store.next_due() is None


async def test_an_entry_that_is_no_key_stops_nobody(
    server: Valkey, store: RedisStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever wrote that: the others are claimed, and listed."""
    await say(store, "m1", rules=OFF)
    server.ask("ZADD", shard_of(store).due, 5, "what is this")
    assert (await take(store, limit=5)).key == ANN
    assert "cannot be read" in caplog.text


async def test_a_row_that_cannot_be_read_is_put_off_and_holds_up_nobody(
    server: Valkey, store: RedisStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the earliest. The others are claimed, and their index can be rebuilt."""
    await say(store, "m1", key=BOB, rules=OFF)
    await clock.advance(1)
    await say(store, "m1", "m2", rules=OFF)
    shard = shard_of(store)
    server.ask("HSET", shard.conversation(BOB), "b", "\xff\xff")
    assert (await take(store, limit=5)).key == ANN
    assert "A conversation cannot be read" in caplog.text
    assert await store.claim(5, LEASE_MS) == []
    server.ask("ZREM", shard.due, str(ANN))
    assert await store.rebuild() == 1


async def test_rebuilding_while_others_write_harms_nothing(url: str, store: RedisStore, clock: VirtualClock) -> None:
    """A deadline that moved since the row was read is left alone."""
    is_over = False

    async def rebuild() -> int:
        wrong, laps = 0, 0
        async with RedisStore.open(url, clock) as other:
            while not is_over:
                wrong += await other.rebuild()
                laps += 1
        assert laps > 3
        return wrong

    rebuilding = asyncio.create_task(rebuild())
    for number in range(12):
        await asyncio.gather(*(say(store, f"m{number}", key=key(c), rules=OFF) for c in range(20)))
        for claim in await store.claim(20, LEASE_MS):
            assert await store.settle(claim, Answered() if number % 2 else Dead("no"))
        await clock.advance(1)
    is_over = True
    await rebuilding
    assert await store.next_due() is None
    assert await store.claim(5, LEASE_MS) == []
    assert await store.rebuild() == 0


async def test_a_claimer_that_died_after_taking_costs_others_a_moment(
    url: str, store: RedisStore, clock: VirtualClock
) -> None:
    """It had put the deadline off and wrote nothing: the next one finds the conversation as it was."""
    await say(store, "m1", rules=OFF)
    async with RedisStore.open(url, clock) as dying:
        assert len(await shelf_of(dying)._claiming._take(shard_of(dying), [str(ANN)], clock.now())) == 1
    assert await store.claim(5, LEASE_MS) == []
    assert await store.next_due() == clock.now() + RESERVED_MS
    await clock.advance(RESERVED_MS)
    claim = await take(store)
    assert (claim.epoch, ids_of(claim)) == (1, ["m1"])
    assert RESERVED_MS < HORIZON_MS


async def test_what_was_due_a_moment_ago_is_not_even_offered(store: RedisStore, clock: VirtualClock) -> None:
    """Its deadline moved between looking and taking: it is not put off, and nobody's deadline changes."""
    answer = await say(store, "m1")
    assert await shelf_of(store)._claiming._take(shard_of(store), [str(ANN)], clock.now()) == []
    assert await store.next_due() == answer.due_at


async def test_what_is_taken_and_then_said_more_to_is_not_claimed_early(
    url: str, store: RedisStore, clock: VirtualClock
) -> None:
    """Between offering and claiming somebody goes on talking: the claim is refused, and the new deadline stands."""
    await say(store, "m1")
    await clock.advance(1_000)
    async with RedisStore.open(url, clock) as other:
        decide = store._claimed

        def and_meanwhile(due: Any, lease_ms: int) -> Any:
            draft = decide(due, lease_ms)
            drafts.append(draft)
            return draft

        drafts: list[Any] = []
        swap = shelf_of(store)._swap

        async def late(*args: Any) -> Any:
            await say(other, "m2")
            return await swap(*args)

        store._claimed = and_meanwhile  # type: ignore[method-assign]
        shelf_of(store)._swap = late  # type: ignore[assignment,method-assign]
        assert await store.claim(5, LEASE_MS) == []
    assert len(drafts) == 1
    due_at = await store.next_due()
    assert due_at is not None
    assert due_at > clock.now()
    assert await open_ids(store) == ["m1", "m2"]


# Hints.

SOON = Rules(silence_ms=300, typing_inference_ms=0)


def is_heard(server: Valkey, prefix: str, listeners: int = 1) -> Callable[[], bool]:
    return lambda: server.ask("PUBSUB", "NUMSUB", f"{prefix}:0:hints")[1] == listeners


async def test_another_process_hears_of_an_early_deadline_and_nothing_of_late_ones(
    server: Valkey, url: str, prefix: str, store: RedisStore, clock: VirtualClock
) -> None:
    """Publishing is for whoever listens now; garbage on the channel ends nothing."""
    async with RedisStore.open(url, SystemClock()) as other:
        hints = other.hints()
        heard = asyncio.ensure_future(anext(hints))
        await asyncio.to_thread(until, is_heard(server, prefix))
        await say(store, "m1", key=BOB)
        answer = await say(store, "m1", rules=SOON)
        assert await asyncio.wait_for(heard, 5) == Hint(answer.due_at or 0)
        heard = asyncio.ensure_future(anext(hints))
        server.ask("PUBLISH", f"{prefix}:0:hints", "what is this")
        await asyncio.to_thread(until, is_heard(server, prefix, 0))
        await asyncio.to_thread(until, is_heard(server, prefix))
        await clock.advance(1_000)
        again = await say(store, "m2", rules=SOON)
        assert await asyncio.wait_for(heard, 5) == Hint(again.due_at or 0)
        await hints.aclose()  # type: ignore[attr-defined]


async def test_a_hint_is_given_though_the_first_try_was_refused(
    server: Valkey, url: str, prefix: str, store: RedisStore, clock: VirtualClock
) -> None:
    """Whoever writes to a conversation for the first time does not know its row yet: that is the usual case."""
    await say(store, "m1")
    async with RedisStore.open(url, clock) as other:
        hints = store.hints()
        heard = asyncio.ensure_future(anext(hints))
        await asyncio.to_thread(until, is_heard(server, prefix))
        answer = await say(other, "m2", rules=SOON)
        assert await asyncio.wait_for(heard, 5) == Hint(answer.due_at or 0)
        await hints.aclose()  # type: ignore[attr-defined]


class Answering:
    """An agent that notes when it was called."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self.answers: asyncio.Queue[int] = asyncio.Queue()

    async def __call__(self, turn: Turn) -> str:
        await self.answers.put(self._clock.now())
        return "hello"


async def test_a_listener_that_lost_its_connection_listens_again(
    server: Valkey, url: str, prefix: str, store: RedisStore
) -> None:
    """Cut off by the server, or by the network for a while; meanwhile nothing fails."""
    with proxying(server.port) as proxy:
        through = url.replace(str(server.port), str(proxy.port))
        async with RedisStore.open(through, SystemClock()) as other:
            hints = other.hints()
            heard = asyncio.ensure_future(anext(hints))
            await asyncio.to_thread(until, is_heard(server, prefix))
            server.ask("CLIENT", "KILL", "TYPE", "pubsub")
            await asyncio.to_thread(until, is_heard(server, prefix))
            proxy.cut()
            await asyncio.to_thread(until, is_heard(server, prefix, 0))
            proxy.heal()
            await asyncio.to_thread(until, is_heard(server, prefix))
            answer = await say(store, "m1", rules=SOON)
            assert await asyncio.wait_for(heard, 5) == Hint(answer.due_at or 0)
            await hints.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("way", ["hints", "horizon"])
async def test_a_worker_elsewhere_is_woken_by_a_hint_and_without_one_by_the_horizon(
    server: Valkey, url: str, prefix: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process only receives, another only answers. Each way does alone: without a horizon, or with no hint."""
    if way == "hints":
        monkeypatch.setattr(Alarm.__init__, "__defaults__", (3_600_000,))
    clock = SystemClock()
    agent = Answering(clock)
    async with (
        RedisStore.open(url, clock) as behind,
        TurnTake(behind, rules=SOON, agent=agent),
        RedisStore.open(url, SystemClock()) as front,
    ):
        await asyncio.to_thread(until, is_heard(server, prefix))
        if way == "horizon":
            monkeypatch.setattr(front._lanes[0], "_hint", lambda *_: None)
        for number in range(2):
            answer = await say(front, f"m{number}", key=key(number), rules=SOON)
            late = await asyncio.wait_for(agent.answers.get(), 5) - (answer.due_at or 0)
            assert 0 <= late < HORIZON_MS + 500


async def test_an_idle_store_hardly_asks(server: Valkey, url: str, prefix: str) -> None:
    """One look a second, and one subscription for as long as nobody cuts it."""
    clock = SystemClock()
    async with RedisStore.open(url, clock) as store, TurnTake(store, rules=SOON, agent=Answering(clock)):
        await asyncio.to_thread(until, is_heard(server, prefix))
        await clock.sleep(300)
        started = time.monotonic()
        with watched(server) as seen:
            await clock.sleep(3_000)
        seconds = time.monotonic() - started
    ours = [command for command in seen if any(word.startswith(prefix) for word in command.words)]
    assert 1 <= len(ours) <= seconds + 1, Counter(command.name for command in ours)
    assert not [command for command in seen if "SUBSCRIBE" in command.name]


# The clock.


class Shifted(SystemClock):
    """Of a machine whose time is wrong."""

    def __init__(self, by_ms: int) -> None:
        super().__init__()
        self._offset += by_ms / 1000


async def test_stores_whose_clocks_differ_by_hours_agree(server: Valkey, url: str) -> None:
    """The server's time rules: nothing is due early or late, and no lease ends before its time."""
    clocks = [Shifted(by) for by in (-3_600_000, 0, 3_600_000)]
    async with AsyncExitStack() as stores:
        behind, right, ahead = [await stores.enter_async_context(RedisStore.open(url, clock)) for clock in clocks]
        seconds, micros = server.ask("TIME")
        for clock in clocks:
            assert abs(clock.now() - (seconds * 1000 + micros // 1000)) < 5_000
        await say(ahead, "m1")
        assert await behind.claim(5, LEASE_MS) == []
        assert await right.claim(5, LEASE_MS) == []
        await say(behind, "m1", key=BOB, rules=OFF)
        claim = await take(ahead)
        assert claim.key == BOB
        assert await behind.claim(5, LEASE_MS) == []
        assert await right.extend([claim], LEASE_MS) == [True]


async def test_the_time_that_the_data_has_seen_never_comes_again(url: str) -> None:
    """The server's clock was an hour ahead and was put right: a new process goes on from there."""
    later = VirtualClock(SystemClock().now() + 3_600_000)
    async with RedisStore.open(url, later) as store:
        await say(store, "m1", rules=OFF)
    clock = SystemClock()
    async with RedisStore.open(url, clock) as store:
        assert clock.now() >= later.now()
        assert ids_of(await take(store)) == ["m1"]


def stalling(store: RedisStore, clock: SystemClock, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The process stands still between deciding and writing, the first time. Notes when each write left."""
    write, left_at = shelf_of(store)._write, list[int]()

    async def stalled(*given: Any) -> Any:
        if not left_at:
            await clock.sleep(BEHIND_MS + 100)
        left_at.append(clock.now())
        return await write(*given)

    monkeypatch.setattr(shelf_of(store), "_write", stalled)
    return left_at


async def test_what_was_decided_too_long_ago_is_decided_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline counts from the later time, as does the time of arrival."""
    clock = SystemClock()
    async with RedisStore.open(url, clock) as store:
        left_at = stalling(store, clock, monkeypatch)
        answer = await say(store, "m1")
        found = await store.find(ANN)
    assert len(left_at) == 2
    assert found is not None
    assert left_at[0] <= found.messages[0].received_at <= left_at[1]
    assert answer.due_at == found.messages[0].received_at + PLAIN.silence_ms


async def test_what_was_decided_too_long_ago_is_not_judged_unread(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process extends a claim whose row it never saw, and is late: the claim is not lost, and the lease
    counts from the later time."""
    clock = SystemClock()
    async with RedisStore.open(url, clock) as store, RedisStore.open(url, clock) as other:
        await say(store, "m1", rules=OFF)
        claim = await take(store, lease_ms=30_000)
        left_at = stalling(other, clock, monkeypatch)
        assert await other.extend([claim], LEASE_MS) == [True]
        assert len(left_at) == 3, "late, refused for its row, taken"
        due_at = await store.next_due()
        assert due_at is not None
        assert left_at[0] + LEASE_MS <= due_at <= left_at[2] + LEASE_MS


class Steered(SystemClock):
    """Steady time moves by hand."""

    def __init__(self) -> None:
        self.steady_ms = 0
        super().__init__()
        self._offset = 1_000_000.0

    def _read(self) -> int:
        return int(self._offset * 1000) + self.steady_ms


def test_a_clock_that_follows_goes_forward_at_once() -> None:
    """The store's clock was set forward by an hour."""
    clock = Steered()
    clock.follow(1_000_000_000)
    clock.follow(1_000_000_000 + 3_600_000)
    assert clock.now() == 1_000_000_000 + 3_600_000


def test_a_clock_that_follows_starts_at_the_stores_time_also_if_that_is_earlier() -> None:
    """Nothing was decided yet by the machine's own time."""
    clock = Steered()
    clock.now()
    clock.follow(5_000_000)
    assert clock.now() == 5_000_000


def test_a_clock_that_drifts_is_put_right_without_going_back() -> None:
    """50 ms too fast a minute; single words may be late, so only the least lateness of a minute counts."""
    clock = Steered()
    clock.follow(1_000_000_000)
    before = 0
    for second in range(1, 241):
        clock.steady_ms = second * 1_000 + second * 50 // 60
        store_ms = 1_000_000_000 + second * 1_000
        assert clock.now() >= max(before, store_ms - 2)
        before = clock.now()
        clock.follow(store_ms - (200 if second % 7 else 0))
        assert clock.now() >= before
    assert abs(clock.now() - (1_000_000_000 + 240_000)) <= 110
    assert clock.steady_ms - 240_000 == 200, "left alone it would be 200 ms ahead"


def test_a_store_whose_clock_was_set_back_by_an_hour_is_not_followed_there() -> None:
    """Deadlines were given by the old time: it goes on as before, for as long as that takes."""
    clock = Steered()
    clock.follow(1_000_000_000)
    for second in range(10, 4_000, 10):
        clock.steady_ms = second * 1_000
        clock.follow(1_000_000_000 + second * 1_000 - 3_600_000)
        assert clock.now() == 1_000_000_000 + second * 1_000


def test_a_word_that_was_long_under_way_changes_nothing() -> None:
    """Two seconds late, it says an earlier time than it is."""
    clock = Steered()
    clock.follow(1_000_000_000)
    clock.steady_ms = 10_000
    clock.follow(1_000_000_000 + 8_000)
    assert clock.now() == 1_000_010_000
