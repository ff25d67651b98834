"""The connection to Discord's gateway, against a gateway of our own that discord.py really connects to."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest
import yarl
from aiohttp import WSMsgType, web

from harness.writing import everything_ran
from turntake import ConfigurationError, StoreUnavailable
from turntake.platforms.channel import ChatEvent
from turntake.platforms.discord.gateway import MOST_AUTHORS, DiscordGateway, GatewayClient, discord

TOKEN = "recorded-bot-token"
BOT: dict[str, Any] = {"id": "9000", "username": "bot", "discriminator": "0000", "avatar": None, "bot": True}
APP: dict[str, Any] = {"id": "9000", "name": "bot", "description": "", "icon": None, "verify_key": "", "flags": 0}
APP |= {"bot_public": True, "bot_require_code_grant": False, "owner": BOT, "team": None, "summary": ""}
GIVEN = {"gateway": "true", "bot_token": TOKEN}

pytestmark = pytest.mark.timeout(20)


class Gateway:
    """What Discord does at the other end: hello, ready, then whatever it is told to say, numbered."""

    def __init__(self) -> None:
        self.identified: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.resumed: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.refuse_with = 0
        self._sequence = 0
        self._socket = web.WebSocketResponse()
        self._url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/users/@me", self._me)
        app.router.add_get("/oauth2/applications/@me", self._application)
        app.router.add_get("/", self._connected)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self._url = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From here on this is Discord."""
        monkeypatch.setattr(discord.http.Route, "BASE", f"http://{self._url}")
        monkeypatch.setattr(discord.gateway.DiscordWebSocket, "DEFAULT_GATEWAY", yarl.URL(f"ws://{self._url}/"))

    async def say(self, name: str, data: Mapping[str, Any]) -> None:
        self._sequence += 1
        await self._socket.send_json({"op": 0, "s": self._sequence, "t": name, "d": data})

    async def hang_up(self, code: int) -> None:
        await self._socket.close(code=code)

    async def _me(self, request: web.Request) -> web.Response:
        if request.headers["Authorization"] != f"Bot {TOKEN}":
            return said({"message": "401: Unauthorized", "code": 0}, status=401)
        return said(BOT)

    async def _application(self, request: web.Request) -> web.Response:
        return said(APP)

    async def _connected(self, request: web.Request) -> web.WebSocketResponse:
        self._socket = socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": 60_000}})
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await self._heard(socket, json.loads(message.data))
        return socket

    async def _heard(self, socket: web.WebSocketResponse, words: dict[str, Any]) -> None:
        if words["op"] == 1:
            await socket.send_json({"op": 11})
        elif words["op"] == 2 and self.refuse_with:
            await socket.close(code=self.refuse_with)
        elif words["op"] == 2:
            ready = {"v": 10, "user": BOT, "guilds": [], "session_id": "s1", "application": {"id": "9000", "flags": 0}}
            await self.say("READY", ready | {"resume_gateway_url": f"ws://{self._url}/"})
            self.identified.put_nowait(words["d"])
        elif words["op"] == 6:
            self.resumed.put_nowait(words["d"])


def said(body: Mapping[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=json.dumps(body).encode(), status=status, content_type="application/json")


class Heard:
    """What was told, one event at a time. `failures` are raised first."""

    def __init__(self, *failures: Exception) -> None:
        self.events: asyncio.Queue[ChatEvent] = asyncio.Queue()
        self.failures = list(failures)

    async def __call__(self, events: Sequence[ChatEvent]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        for event in events:
            self.events.put_nowait(event)


@pytest.fixture
async def gateway(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    async with Gateway() as gateway:
        gateway.stand_in(monkeypatch)
        yield gateway


@asynccontextmanager
async def listening(listener: DiscordGateway, hear: Heard) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(listener.listen(hear))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def post(id: str, text: str = "hi", **more: Any) -> dict[str, Any]:
    author = {"id": "42", "username": "ann", "discriminator": "0", "avatar": None}
    said = {"id": id, "channel_id": "8000", "guild_id": "7000", "type": 0, "author": author, "content": text}
    lists: dict[str, Any] = {name: [] for name in ("attachments", "embeds", "mentions", "mention_roles", "components")}
    flags = {"timestamp": "2026-09-21T13:33:20.123000+00:00", "edited_timestamp": None, "tts": False, "pinned": False}
    return said | lists | flags | {"mention_everyone": False} | more


async def test_what_people_write_and_that_they_type_is_told_in_order(gateway: Gateway) -> None:
    hear = Heard()
    async with listening(DiscordGateway(GIVEN), hear):
        await gateway.identified.get()
        await gateway.say("TYPING_START", {"channel_id": "8000", "user_id": "42", "timestamp": 1_790_000_000})
        for place in range(20):
            await gateway.say("MESSAGE_CREATE", post(str(600 + place), f"text {place}"))
        events = [await hear.events.get() for _ in range(21)]
    assert [event.kind for event in events] == ["typing"] + ["message"] * 20
    assert [event.text for event in events[1:]] == [f"text {place}" for place in range(20)]
    assert {event.account for event in events} == {"9000"}


async def test_it_asks_for_messages_their_text_and_typing_and_no_more(gateway: Gateway) -> None:
    async with listening(DiscordGateway(GIVEN), Heard()):
        asked = await gateway.identified.get()
    assert asked["token"] == TOKEN
    assert asked["intents"] == 1 << 0 | 1 << 9 | 1 << 11 | 1 << 12 | 1 << 14 | 1 << 15


async def test_our_own_words_are_known_by_the_id_that_discord_gave(gateway: Gateway) -> None:
    hear = Heard()
    async with listening(DiscordGateway(GIVEN), hear):
        await gateway.identified.get()
        await gateway.say("TYPING_START", {"channel_id": "8000", "user_id": "9000", "timestamp": 1_790_000_000})
        await gateway.say("MESSAGE_CREATE", post("600", author=BOT))
        assert (await hear.events.get()).kind == "echo"


async def test_a_deletion_is_told_with_the_author_that_was_heard(gateway: Gateway) -> None:
    """Else nobody would find the message where each person of a group has a buffer."""
    hear = Heard()
    async with listening(DiscordGateway(GIVEN), hear):
        await gateway.identified.get()
        await gateway.say("MESSAGE_CREATE", post("600"))
        for id in ("600", "599"):
            await gateway.say("MESSAGE_DELETE", {"id": id, "channel_id": "8000", "guild_id": "7000"})
        _, known, unknown = [await hear.events.get() for _ in range(3)]
    assert (known.kind, known.target, known.sender) == ("delete", "600", "42")
    assert (unknown.kind, unknown.target, unknown.sender) == ("delete", "599", "")


async def test_a_lost_connection_is_taken_up_where_it_was(gateway: Gateway) -> None:
    hear = Heard()
    async with listening(DiscordGateway(GIVEN), hear):
        await gateway.identified.get()
        await gateway.say("MESSAGE_CREATE", post("600"))
        assert (await hear.events.get()).id == "600"
        await gateway.hang_up(4000)
        resumed = await gateway.resumed.get()
        await gateway.say("MESSAGE_CREATE", post("601"))
        assert (await hear.events.get()).id == "601"
    assert (resumed["session_id"], resumed["seq"]) == ("s1", 2)


async def test_what_could_not_be_stored_is_told_again_before_what_follows(gateway: Gateway) -> None:
    hear = Heard(StoreUnavailable())
    async with listening(DiscordGateway(GIVEN), hear):
        await gateway.identified.get()
        for id in ("600", "601"):
            await gateway.say("MESSAGE_CREATE", post(id))
        assert [(await hear.events.get()).id for _ in range(2)] == ["600", "601"]


async def test_what_nobody_can_take_does_not_stand_in_the_way(gateway: Gateway) -> None:
    """It ends the connection with its error; what was heard after it is told at the next."""
    hear = Heard(RuntimeError("a defect"))
    listener = DiscordGateway(GIVEN)
    for id in ("600", "601"):
        listener._received.put_nowait(json.dumps({"op": 0, "t": "MESSAGE_CREATE", "d": post(id)}))
    with pytest.raises(RuntimeError, match="a defect"):
        await listener.listen(hear)
    async with listening(listener, hear):
        assert (await hear.events.get()).id == "601"


async def test_what_was_being_told_when_the_connection_broke_is_told_at_the_next(gateway: Gateway) -> None:
    hear, listener = Heard(), DiscordGateway(GIVEN)
    started = asyncio.Event()

    async def stuck(events: Sequence[ChatEvent]) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(listener.listen(stuck))
    await gateway.identified.get()
    await gateway.say("MESSAGE_CREATE", post("600"))
    await started.wait()
    await gateway.hang_up(4010)
    with pytest.raises(discord.ConnectionClosed):
        await task
    async with listening(listener, hear):
        assert (await hear.events.get()).id == "600"


@pytest.mark.parametrize(
    ("code", "words"),
    [(4004, "TURNTAKE_DISCORD_BOT_TOKEN"), (4014, "Message Content Intent"), (4011, "too many servers")],
)
async def test_a_refusal_for_good_says_what_to_do(gateway: Gateway, code: int, words: str) -> None:
    gateway.refuse_with = code
    with pytest.raises(ConfigurationError, match=words):
        await DiscordGateway(GIVEN).listen(Heard())


async def test_a_token_that_discord_does_not_know_is_told(gateway: Gateway) -> None:
    with pytest.raises(ConfigurationError, match="TURNTAKE_DISCORD_BOT_TOKEN"):
        await DiscordGateway(GIVEN | {"bot_token": "old"}).listen(Heard())


@pytest.mark.parametrize("off", ["", "false", "OFF", "no", "0"])
async def test_switched_off_it_connects_to_nothing(gateway: Gateway, off: str) -> None:
    async with listening(DiscordGateway({"gateway": off}), Heard()) as task:
        await everything_ran()
        assert not task.done()
        assert asyncio.all_tasks() == {task, asyncio.current_task()}, "nothing else is under way, such as connecting"
    assert gateway.identified.empty()


def test_what_is_neither_on_nor_off_is_told() -> None:
    with pytest.raises(ConfigurationError, match="true or false"):
        DiscordGateway({"gateway": "maybe", "bot_token": TOKEN})


def test_without_a_token_there_is_nothing_to_listen_with() -> None:
    with pytest.raises(ConfigurationError, match="TURNTAKE_DISCORD_BOT_TOKEN"):
        DiscordGateway({"gateway": "true"})


@pytest.mark.parametrize("written", ["", "{", "[]", "null", '{"op":11}', '{"t":"MESSAGE_CREATE","d":[]}', '{"t":5}'])
def test_what_is_no_event_is_passed_over(written: str) -> None:
    assert DiscordGateway(GIVEN)._events_in(written) == []


def test_only_so_many_authors_are_remembered() -> None:
    listener = DiscordGateway(GIVEN)
    for id in range(MOST_AUTHORS + 5):
        listener._events_in(json.dumps({"op": 0, "t": "MESSAGE_CREATE", "d": post(str(id))}))
    assert len(listener._authors) == MOST_AUTHORS


async def test_nothing_that_is_heard_is_written_to_a_log(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    hear = Heard()
    async with listening(DiscordGateway(GIVEN), hear):
        await gateway.identified.get()
        await gateway.say("MESSAGE_CREATE", post("600", "a secret of ours"))
        await hear.events.get()
    assert "a secret of ours" not in caplog.text


async def test_nothing_that_is_heard_is_kept() -> None:
    async with GatewayClient(asyncio.Queue()) as ear:
        assert list(ear.cached_messages) == []
        assert ear._connection.max_messages is None
