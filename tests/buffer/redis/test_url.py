"""What a Redis store's URL may say, and what it fixes for ever."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import SSLConnection
from redis.asyncio.sentinel import SentinelManagedSSLConnection

from harness.databases import HOST, Cluster, Valkey, free_port, until
from turntake import plugins
from turntake.buffer.redis.backend import RedisStore
from turntake.buffer.redis.examine import examine
from turntake.buffer.redis.url import RedisOptions, connect, options_of
from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, OFF, ids_of, say, take


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("redis")) as server:
        yield server


def opened(url: str) -> RedisStore:
    return RedisStore.open(url, VirtualClock())


def reached(url: str) -> dict[str, Any]:
    """How a client of one server would connect."""
    client = connect(url)
    assert isinstance(client, Redis)
    return dict(client.connection_pool.connection_kwargs)


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("redis://db.test", {"host": "db.test"}),
        ("redis://db.test:6380/3", {"host": "db.test", "port": 6380, "db": 3}),
        ("valkey://db.test:6380", {"host": "db.test", "port": 6380}),
        ("redis://ann:p%40ss%3A%2F@db.test", {"host": "db.test", "username": "ann", "password": "p@ss:/"}),
        ("redis://:secret@db.test", {"host": "db.test", "password": "secret"}),
        ("redis://[::1]:6380/2", {"host": "::1", "port": 6380, "db": 2}),
        ("redis://db.test/1?prefix=p&shards=4&wait=1&wait_ms=50", {"host": "db.test", "db": 1}),
        ("redis://db.test?prefix=p&client_name=chat&shards=4", {"host": "db.test", "client_name": "chat"}),
        ("redis://db.test?socket_timeout=7", {"host": "db.test", "socket_timeout": 7.0}),
    ],
)
def test_a_url_of_one_server_names_all_that_it_takes_to_connect(url: str, wanted: dict[str, Any]) -> None:
    """Ours are taken out; whatever else is there goes to the client."""
    said = reached(url)
    assert {name: said.get(name) for name in wanted} == wanted
    assert not {"prefix", "shards", "wait", "wait_ms"} & set(said)


@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
def test_a_scheme_with_an_s_means_tls(scheme: str) -> None:
    client = connect(f"{scheme}://db.test?ssl_ca_certs=ca.pem")
    assert issubclass(client.connection_pool.connection_class, SSLConnection)
    assert client.connection_pool.connection_kwargs["ssl_ca_certs"] == "ca.pem"


@pytest.mark.parametrize("scheme", ["redis+cluster", "valkey+cluster", "rediss+cluster", "valkeys+cluster"])
def test_a_cluster_is_found_through_one_of_its_nodes(scheme: str) -> None:
    client = connect(f"{scheme}://ann:p%40ss@db.test:7000?prefix=p")
    assert isinstance(client, RedisCluster)
    (node,) = client.nodes_manager.startup_nodes.values()
    assert (node.host, node.port) == ("db.test", 7000)
    said = client.nodes_manager.connection_kwargs
    assert (said["username"], said["password"]) == ("ann", "p@ss")
    is_tls = scheme.startswith(("rediss", "valkeys"))
    assert issubclass(said.get("connection_class", object), SSLConnection) == is_tls


def sentinels_of(client: Any) -> list[tuple[str, int]]:
    asked = client.connection_pool.sentinel_manager.sentinels
    said = [one.connection_pool.connection_kwargs for one in asked]
    return [(one["host"], one["port"]) for one in said]


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        ("s1.test", [("s1.test", 26_379)]),
        ("s1.test:1,s2.test,s3.test:3", [("s1.test", 1), ("s2.test", 26_379), ("s3.test", 3)]),
        ("[::1]:1,[::2]", [("::1", 1), ("::2", 26_379)]),
        ("s1.test:1,[::2]:2", [("s1.test", 1), ("::2", 2)]),
    ],
)
def test_sentinels_are_all_asked(hosts: str, found: list[tuple[str, int]]) -> None:
    url = f"redis+sentinel://ann:p%40ss@{hosts}/main/5?prefix=p"
    client = connect(url)
    assert options_of(url).prefix == "p"
    assert sentinels_of(client) == found
    pool = client.connection_pool
    assert pool.service_name == "main"
    said = pool.connection_kwargs
    assert (said["username"], said["password"], said["db"]) == ("ann", "p@ss", 5)


@pytest.mark.parametrize("scheme", ["rediss+sentinel", "valkeys+sentinel"])
def test_behind_sentinel_tls_holds_for_sentinels_and_servers(scheme: str) -> None:
    pool = connect(f"{scheme}://s1.test/main").connection_pool
    assert issubclass(pool.connection_class, SentinelManagedSSLConnection)
    (sentinel,) = pool.sentinel_manager.sentinels
    assert issubclass(sentinel.connection_pool.connection_class, SSLConnection)


def test_behind_sentinel_nobody_is_asked_for_tls_unless_the_url_is() -> None:
    pool = connect("redis+sentinel://s1.test/main").connection_pool
    (sentinel,) = pool.sentinel_manager.sentinels
    classes = pool.connection_class, sentinel.connection_pool.connection_class
    assert [issubclass(each, SSLConnection) for each in classes] == [False, False]


def test_behind_sentinel_other_options_go_to_the_client_too() -> None:
    """As with one server; or a private authority could not be named."""
    said = connect("rediss+sentinel://s1.test/main?prefix=p&ssl_ca_certs=ca.pem").connection_pool.connection_kwargs
    assert said["ssl_ca_certs"] == "ca.pem"


def test_our_options_have_defaults() -> None:
    assert options_of("redis://db.test") == RedisOptions("turntake", None, 0, 1_000, False)
    url = "redis+cluster://db.test?prefix=chat&shards=256&wait=2&wait_ms=250"
    assert options_of(url) == RedisOptions("chat", 256, 2, 250, True)
    assert options_of("redis://db.test?shards=1&wait=16&wait_ms=1") == RedisOptions("turntake", 1, 16, 1, False)


@pytest.mark.parametrize("kind", ["", "+cluster", "+sentinel"])
@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys"])
def test_every_scheme_is_installed(scheme: str, kind: str) -> None:
    assert plugins.load("stores", scheme + kind) is RedisStore


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://db.test?shards=0", "`shards`"),
        ("redis://db.test?shards=257", "`shards`"),
        ("redis://db.test?shards=four", "`shards`"),
        ("redis://db.test?shards=-1", "`shards`"),
        ("redis://db.test?shards=", "`shards`"),
        ("redis://db.test?wait=17", "`wait`"),
        ("redis://db.test?wait=yes", "`wait`"),
        ("redis://db.test?wait_ms=0", "`wait_ms`"),
        ("redis://db.test?prefix={a}", "`prefix`"),
        ("redis://db.test?prefix=a*b", "`prefix`"),
        ("redis://db.test?prefix=[ab]", "`prefix`"),
        ("redis://db.test?prefix=a%20b", "`prefix`"),
        ("redis://db.test?prefix=a%5Cb", "`prefix`"),
        ("redis://db.test?prefix=", "`prefix`"),
        ("redis://db.test:port", "cannot be read"),
        ("redis://[::1", "cannot be read"),
        ("redis://db.test/first", "cannot be read"),
        ("redis://db.test?socket_timeout=long", "cannot be read"),
        ("redis+cluster://db.test/1", "cannot be read"),
        ("redis+sentinel://s1.test", "name-of-the-primary"),
        ("redis+sentinel:///main", "name-of-the-primary"),
        ("redis+sentinel://s1.test:port/main", "cannot be read"),
        ("redis+sentinel://s1.test/main/first", "cannot be read"),
    ],
)
async def test_a_wrong_url_is_refused_with_a_word_on_what_is_wrong(url: str, says: str) -> None:
    """Before anything is asked of a server."""
    with pytest.raises(ConfigurationError, match=says):
        async with opened(url):
            pass


@pytest.mark.parametrize("kind", ["redis", "redis+cluster", "redis+sentinel"])
@pytest.mark.parametrize("login", [":hunter{}2secret", "hunter{}2secret:x", ":4242{}2secret", ":hunter{}4242"])
@pytest.mark.parametrize("mark", ["/", "#", "?", "[", "]", "?shards=", "?prefix=", "/0?", "\u2100"])
async def test_a_password_that_was_not_escaped_is_never_shown(kind: str, login: str, mark: str) -> None:
    """Cut in two it passes for a host, a port, a path or an option; what is said repeats no part of the URL."""
    url = f"{kind}://{login.format(mark)}@db.test/0"
    with pytest.raises(ConfigurationError, match=r"cannot be read.*write them as %40 %2F %3F %23") as refused:
        opened(url)
    for part in ("hunter", "secret", "4242", "db.test"):
        assert part not in str(refused.value)


@pytest.mark.parametrize("url", ["redis://db.test:hunter", "redis://db.test/hunter", "redis://db.test?hunter=1"])
async def test_no_part_of_a_wrong_url_is_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read") as refused:
        connect(url)
    assert "hunter" not in str(refused.value)


async def test_an_option_that_nobody_knows_is_refused(server: Valkey) -> None:
    """A slip such as `shard=4` must not pass for the default."""
    with pytest.raises(ConfigurationError, match="an option that is neither ours"):
        async with opened(f"{server.url}?shard=4"):
            pass


@pytest.mark.parametrize("kind", ["redis", "redis+cluster", "redis+sentinel"])
async def test_a_server_that_is_not_there_is_unavailable(kind: str) -> None:
    """It may come; the URL is not wrong. Whoever asks hears so soon."""
    url = f"{kind}://{HOST}:{free_port()}/{'main' if kind.endswith('sentinel') else '0'}"
    with pytest.raises(StoreUnavailable):
        async with asyncio.timeout(4), opened(url):
            pass
    assert [finding.level async for finding in examine(url, VirtualClock())] == ["fail"]


async def test_the_number_of_shards_is_fixed_by_the_first_who_comes(server: Valkey) -> None:
    """A conversation's shard is its place by that number: with another number it would not be found."""
    url = f"{server.url}?prefix=fixed"
    async with opened(f"{url}&shards=7") as store:
        assert store.backend.shards == 7
        await say(store, "m1", rules=OFF)
    for other in ("1", "8"):
        with pytest.raises(ConfigurationError, match="made with 7 shards"):
            async with opened(f"{url}&shards={other}"):
                pass
    for same in (url, f"{url}&shards=7"):
        async with opened(same) as store:
            assert store.backend.shards == 7
    async with opened(url) as store:
        assert ids_of(await take(store)) == ["m1"]


async def test_those_who_come_at_once_agree_on_the_number_of_shards(server: Valkey) -> None:
    """Whoever is second is refused, or takes what the first one set."""
    numbers = (2, 3, None, None)
    stores = [opened(f"{server.url}?prefix=rivals" + (f"&shards={number}" if number else "")) for number in numbers]
    answers = await asyncio.gather(*(store.__aenter__() for store in stores), return_exceptions=True)
    opened_stores = [store for store in answers if isinstance(store, RedisStore)]
    assert len({store.backend.shards for store in opened_stores}) == 1
    assert all(isinstance(answer, RedisStore | ConfigurationError) for answer in answers)
    assert len(opened_stores) >= 2
    for store in opened_stores:
        await store.__aexit__(None, None, None)


async def test_a_later_format_is_left_alone(server: Valkey) -> None:
    """An older release must not write what it cannot read."""
    async with opened(f"{server.url}?prefix=later"):
        server.ask("HSET", "later:meta", "format", 2)
    with pytest.raises(ConfigurationError, match="install a newer turntake"):
        async with opened(f"{server.url}?prefix=later"):
            pass


async def test_prefixes_do_not_see_each_other(server: Valkey) -> None:
    """Two services on one server: conversations, claims, hints and indexes are apart, though one begins another."""
    async with opened(f"{server.url}?prefix=a&shards=2") as one, opened(f"{server.url}?prefix=a2") as other:
        hints = other.hints()
        heard = asyncio.ensure_future(anext(hints))
        await asyncio.to_thread(_wait_for_listener, server, b"a2:0:hints")
        await say(one, "m1", rules=OFF)
        assert await other.find(ANN) is None
        assert await other.claim(5, 1_000) == []
        assert await other.next_due() is None
        assert await other.rebuild() == 0
        assert not heard.done()
        await say(other, "m2", rules=OFF)
        assert (await asyncio.wait_for(heard, 5)).due_at == other.clock.now()
        assert ids_of(await take(one)) == ["m1"]
        assert ids_of(await take(other)) == ["m2"]
        await hints.aclose()  # type: ignore[attr-defined]


def _wait_for_listener(server: Valkey, channel: bytes) -> None:
    until(lambda: server.ask("PUBSUB", "NUMSUB", channel.decode()) == [channel, 1])


@pytest.mark.parametrize("prefix", ["colon:ed", "a.b-c_D9", "s0"])
async def test_a_prefix_may_be_any_plain_name(server: Valkey, prefix: str) -> None:
    """Names are matched by pattern when the index is rebuilt; a prefix is text and no pattern."""
    url = f"{server.url}?prefix={prefix}"
    async with opened(url) as store:
        await say(store, "m1", rules=OFF)
        assert server.ask("DEL", f"{prefix}:{{s0}}:due") == 1
        assert await store.rebuild() == 1
        assert ids_of(await take(store)) == ["m1"]


async def test_doctor_only_looks(server: Valkey) -> None:
    """It makes no store, and finds the one there is."""
    url = f"{server.url}?prefix=looked"
    said = [finding.text async for finding in examine(url, VirtualClock())]
    assert "prefix looked: will be set up at the first start" in said
    assert server.ask("EXISTS", "looked:meta") == 0
    async with opened(f"{url}&shards=3"):
        pass
    assert "prefix looked: 3 shards" in [finding.text async for finding in examine(url, VirtualClock())]


async def test_hints_are_heard_on_every_node_of_a_cluster(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Who listens and who writes may talk to different nodes."""
    with Cluster(tmp_path_factory.mktemp("cluster"), nodes=2, is_safe=False) as cluster:
        async with opened(cluster.url) as one, opened(cluster.url) as other:
            hints = other.hints()
            heard = asyncio.ensure_future(anext(hints))

            def is_listening() -> bool:
                return any(node.ask("PUBSUB", "NUMSUB", "turntake:0:hints")[1] for node in cluster.nodes)

            await asyncio.to_thread(until, is_listening)
            for number in range(8):
                await say(one, f"m{number}", rules=OFF)
            assert (await asyncio.wait_for(heard, 5)).due_at == one.clock.now()
            await hints.aclose()  # type: ignore[attr-defined]
