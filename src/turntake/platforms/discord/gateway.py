"""Discord's gateway: the connection over which a bot hears ordinary messages, and people typing.

discord.py keeps the connection, resumes it and beats its heart; what is heard means is decided in `discord.py`.
"""

import asyncio
import logging
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from turntake.clock import SystemClock
from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.platforms.channel import ChatEvent
from turntake.platforms.discord.content import gateway_events
from turntake.platforms.discord.webhooks import GATEWAY
from turntake.platforms.listener import Listener, OnEvents

with warnings.catch_warnings():
    # It brings a sound module that Python warns about, and that nobody needs here.
    warnings.simplefilter("ignore", DeprecationWarning)
    import discord as discord

log = logging.getLogger("turntake")

ON, OFF = frozenset({"1", "on", "true", "yes"}), frozenset({"", "0", "off", "false", "no"})
AGAIN_MS = 1_000
AUTHORS = 10_000
MOST_HEARD = 50_000
"""How many messages' authors are remembered: Discord does not say whose message was deleted."""
INTENTS = ("guilds", "guild_messages", "guild_typing", "dm_messages", "dm_typing", "message_content")
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


class Person(msgspec.Struct, frozen=True):
    id: str


class Ready(msgspec.Struct, frozen=True):
    """The gateway's first word says who we are."""

    user: Person


class DiscordGateway(Listener):
    """Hears what the bot may read. What was said while no process was connected is not sent again."""

    options = (GATEWAY,)

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given)
        wanted = given.get("gateway", "").strip().lower()
        if wanted not in ON | OFF:
            raise ConfigurationError("TURNTAKE_DISCORD_GATEWAY is true or false.")
        self._is_on = wanted in ON
        if self._is_on and not given.get("bot_token"):
            raise ConfigurationError("The gateway needs the bot's token: set TURNTAKE_DISCORD_BOT_TOKEN.")
        # Both outlive a connection: what was heard is told, whatever becomes of the connection.
        self._heard: asyncio.Queue[str] = asyncio.Queue(MOST_HEARD)
        self._untold: list[ChatEvent] = []
        self._own_id = ""
        self._authors: OrderedDict[str, str] = OrderedDict()

    async def listen(self, on_events: OnEvents) -> None:
        if not self._is_on:
            await asyncio.Event().wait()
        telling = asyncio.create_task(self._tell(on_events), name="turntake-discord-tell")
        connected = asyncio.create_task(self._connected(), name="turntake-discord-gateway")
        try:
            await asyncio.wait({telling, connected}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            telling.cancel()
            connected.cancel()
            ends = await asyncio.gather(telling, connected, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _connected(self) -> None:
        """Returns, or raises, only once discord.py has given up."""
        async with GatewayClient(self._heard) as client:
            try:
                await client.start(self._values["bot_token"])
            except discord.LoginFailure:
                raise ConfigurationError(REFUSALS[4004]) from None
            except discord.PrivilegedIntentsRequired:
                raise ConfigurationError(REFUSALS[4014]) from None
            except discord.ConnectionClosed as error:
                _refuse(error)

    async def _tell(self, on_events: OnEvents) -> None:
        while True:
            self._untold = self._untold or self._events_in(await self._heard.get())
            try:
                await _told(on_events, self._untold)
            except Exception:
                # Nobody can take them, so they must not stand in the way of those behind.
                self._untold = []
                raise
            self._untold = []

    def _events_in(self, written: str) -> list[ChatEvent]:
        try:
            dispatch = msgspec.json.decode(written, type=Dispatch)
            data = msgspec.json.decode(dispatch.d)
        except (ValueError, RecursionError):
            return []
        if not dispatch.t or not isinstance(data, dict):
            return []
        if dispatch.t == "READY":
            self._own_id = msgspec.convert(data, Ready).user.id
        return [self._signed(event) for event in gateway_events(dispatch.t, data, self._own_id)]

    def _signed(self, event: ChatEvent) -> ChatEvent:
        """The event with its author, which deletions lack."""
        if event.kind == "message":
            self._authors[event.id] = event.sender
            while len(self._authors) > AUTHORS:
                self._authors.popitem(last=False)
        is_unsigned = event.kind == "delete" and not event.sender
        return replace(event, sender=self._authors.get(event.target, "")) if is_unsigned else event


class GatewayClient(discord.Client):
    """A client that only passes on what it hears, and keeps nothing."""

    def __init__(self, heard: "asyncio.Queue[str]") -> None:
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
        self._heard = heard
        # At the level DEBUG it would write down every message.
        logging.getLogger("discord.gateway").setLevel(logging.INFO)

    async def on_socket_raw_receive(self, written: str) -> None:
        with suppress(asyncio.QueueFull):  # nobody takes what is heard, and has not for long
            self._heard.put_nowait(written)


async def _told(on_events: OnEvents, events: list[ChatEvent]) -> None:
    """Returns once they are stored. Those behind them wait, since order counts."""
    while events:
        try:
            return await on_events(events)
        except StoreUnavailable:
            log.warning("What Discord said could not be stored; trying again", extra={"action": "listen"})
            await SystemClock().sleep(AGAIN_MS)


def _refuse(error: discord.ConnectionClosed) -> NoReturn:
    """Raises ConfigurationError if it is no use to connect again."""
    if error.code in REFUSALS:
        raise ConfigurationError(REFUSALS[error.code]) from None
    raise error
