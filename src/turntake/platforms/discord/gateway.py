"""Discord's gateway: the connection over which a bot hears ordinary messages, and people typing.

How this works: discord.py keeps the connection, answers its heartbeats and resumes it after a break; we only take the
raw texts it receives. Each text goes into a queue, so that a slow store never holds up the heartbeat. One task takes
them out in order, reads them with `content.py` and passes the events on until they are stored. Queue and unstored
events belong to the listener and not to the connection: when a connection ends for good and `listen` is called again,
nothing that was heard is lost. What is said while no process is connected is lost; Discord does not send it again.
"""

import asyncio
import logging
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from turntake.clock import SystemClock
from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.platforms.channel import ChatEvent
from turntake.platforms.discord.content import gateway_events
from turntake.platforms.listener import Listener, OnEvents
from turntake.platforms.loose_json import object_in, text_at
from turntake.plugins import extra

with extra("discord-gateway"), warnings.catch_warnings():
    # It brings a sound module that Python warns about, and that nobody needs here.
    warnings.simplefilter("ignore", DeprecationWarning)
    import discord as discord

log = logging.getLogger("turntake")

ON, OFF = frozenset({"1", "on", "true", "yes"}), frozenset({"", "0", "off", "false", "no"})
AGAIN_MS = 1_000
"""Between tries to store an event: soon enough for a person who waits, and a store restarts in seconds."""
MOST_WAITING = 50_000
"""Texts in the queue: at about 2 kB each, 100 MB. A store that is away for longer than that takes loses the newest."""
MOST_AUTHORS = 10_000
"""How many messages' authors are remembered, because Discord does not say whose message was deleted. A message that is
deleted after so many others has long been answered."""
REFUSALS = {
    4004: "Discord does not know the token: set TURNTAKE_DISCORD_BOT_TOKEN to the one under Bot, Token.",
    4011: "The bot is in too many servers for one connection; turntake does not divide them.",
    4013: "Discord does not know the intents that are asked for: upgrade discord.py.",
    4014: "Discord keeps message text back: switch on Message Content Intent in the developer portal, under Bot.",
}


class Dispatch(msgspec.Struct, frozen=True):
    """One message of the gateway: an event's name, and what happened."""

    t: str | None = None
    d: msgspec.Raw = msgspec.Raw(b"null")


class DiscordGateway(Listener):
    """Hears what the bot may read, in servers and in direct messages."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        switch = values.get("gateway", "").strip().lower()
        if switch not in ON | OFF:
            raise ConfigurationError("TURNTAKE_DISCORD_GATEWAY is true or false.")
        self._is_on = switch in ON
        if self._is_on and not values.get("bot_token"):
            raise ConfigurationError("The gateway needs the bot's token: set TURNTAKE_DISCORD_BOT_TOKEN.")
        self._received: asyncio.Queue[str] = asyncio.Queue(MOST_WAITING)
        self._unstored: list[ChatEvent] = []
        self._own_id = ""
        self._authors: OrderedDict[str, str] = OrderedDict()

    async def listen(self, on_events: OnEvents) -> None:
        if not self._is_on:
            await asyncio.Event().wait()
        passing_on = asyncio.create_task(self._pass_on(on_events), name="turntake-discord-pass-on")
        connection = asyncio.create_task(self._connect(), name="turntake-discord-gateway")
        try:
            await asyncio.wait({passing_on, connection}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            passing_on.cancel()
            connection.cancel()
            results = await asyncio.gather(passing_on, connection, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _connect(self) -> None:
        """Returns, or raises, only once discord.py has given up."""
        async with GatewayClient(self._received) as client:
            try:
                await client.start(self._values["bot_token"])
            except discord.LoginFailure:
                raise ConfigurationError(REFUSALS[4004]) from None
            except discord.PrivilegedIntentsRequired:
                raise ConfigurationError(REFUSALS[4014]) from None
            except discord.ConnectionClosed as error:
                if error.code in REFUSALS:
                    raise ConfigurationError(REFUSALS[error.code]) from None
                raise

    async def _pass_on(self, on_events: OnEvents) -> None:
        while True:
            self._unstored = self._unstored or self._events_in(await self._received.get())
            try:
                await _store(on_events, self._unstored)
            except Exception:
                # Nobody can take these, so they must not hold up those behind them.
                self._unstored = []
                raise
            self._unstored = []

    def _events_in(self, text: str) -> list[ChatEvent]:
        try:
            dispatch = msgspec.json.decode(text, type=Dispatch)
        except (ValueError, RecursionError):
            return []
        payload = object_in(bytes(dispatch.d))
        if not dispatch.t or payload is None:
            return []
        if dispatch.t == "READY":  # the gateway's first message says who we are
            self._own_id = text_at(payload, "user", "id")
        return [self._with_author(event) for event in gateway_events(dispatch.t, payload, self._own_id)]

    def _with_author(self, event: ChatEvent) -> ChatEvent:
        """The event with its author, which deletions lack."""
        if event.kind == "message":
            self._authors[event.id] = event.sender
            while len(self._authors) > MOST_AUTHORS:
                self._authors.popitem(last=False)
        lacks_author = event.kind == "delete" and not event.sender
        return replace(event, sender=self._authors.get(event.target, "")) if lacks_author else event


class GatewayClient(discord.Client):
    """A client that only passes on what it receives, and keeps nothing."""

    def __init__(self, received: "asyncio.Queue[str]") -> None:
        super().__init__(
            intents=discord.Intents(
                guilds=True,
                guild_messages=True,
                dm_messages=True,
                guild_typing=True,
                dm_typing=True,
                message_content=True,
            ),
            max_messages=None,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            enable_debug_events=True,
        )
        self._received = received
        # At the level DEBUG it would log every message.
        logging.getLogger("discord.gateway").setLevel(logging.INFO)

    async def on_socket_raw_receive(self, text: str) -> None:
        with suppress(asyncio.QueueFull):  # nothing has been stored for a long time
            self._received.put_nowait(text)


async def _store(on_events: OnEvents, events: list[ChatEvent]) -> None:
    """Returns once they are stored. Those behind them wait, since order counts."""
    while events:
        try:
            return await on_events(events)
        except StoreUnavailable:
            log.warning("What Discord said could not be stored; trying again", extra={"action": "listen"})
            await SystemClock().sleep(AGAIN_MS)
