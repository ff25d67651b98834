"""Which channels are installed. One that cannot be imported, or is not a channel, spoils nothing but itself."""

import re
from collections.abc import Collection
from typing import Any, NamedTuple

from turntake import plugins
from turntake.errors import MissingExtra, TurntakeError
from turntake.platforms.channel import Channel, Option
from turntake.platforms.listener import Listener
from turntake.platforms.replies import ReplyApi

GROUP = "channels"
"""Of entry points: `turntake.channels`, one for each platform."""
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
LISTEN = "listen"
HOME = (
    Option("tenant", "Whose the conversations of this account are; without it the default tenant's.", is_secret=False),
    Option(
        "agent", "The agent that its conversations are for, by the name that rules and events use.", is_secret=False
    ),
)
"""What every account has beside the options of its channel: a webhook does not say whose it is, and who answers."""


class ChannelPlugin(NamedTuple):
    """One installed channel by the name it is registered under, or in `fault` why it cannot be used.

    One that `lacks_extra` is not broken: it needs a library that is not installed, and `fault` says how to get it.
    """

    name: str
    channel: type[Channel] | None = None
    fault: str = ""
    lacks_extra: bool = False

    @property
    def title(self) -> str:
        """The platform's name as people write it."""
        return (self.channel.title if self.channel else "") or self.name

    @property
    def options(self) -> tuple[Option, ...]:
        """What can be set for the channel and its only or first account."""
        return (*self.channel.options, *self.home) if self.channel else ()

    @property
    def home(self) -> tuple[Option, ...]:
        """The options of `HOME`; an option of the channel's own by the same name is the channel's."""
        own = {option.name for option in self.channel.options} if self.channel else set()
        return tuple(option for option in HOME if option.name not in own)

    @property
    def account_options(self) -> tuple[Option, ...]:
        """What can be set for each account by itself."""
        return tuple(option for option in self.options if not option.is_shared)

    @property
    def shared_options(self) -> tuple[Option, ...]:
        """What is set once for all accounts."""
        return tuple(option for option in self.options if option.is_shared)

    def load_listener(self) -> "ListenerPlugin":
        """The channel's listener, imported now, or why it cannot be used."""
        reference = self.channel.listener if self.channel else ""
        if not reference:
            return ListenerPlugin()
        try:
            return ListenerPlugin(*_usable(plugins.load_class(reference), Listener))
        # Whatever somebody else's module raises while it is imported concerns that module alone.
        except Exception as error:
            return ListenerPlugin(*_usable(error, Listener), lacks_extra=isinstance(error, MissingExtra))


class ListenerPlugin(NamedTuple):
    """A channel's listener, or in `fault` why it cannot be used; as in ChannelPlugin."""

    listener: type[Listener] | None = None
    fault: str = ""
    lacks_extra: bool = False


def channels(taken: Collection[str]) -> dict[str, ChannelPlugin]:
    """Every registered channel by name; `taken` are names that mean something else to the settings."""
    return {name: _checked(name, adapter, taken) for name, adapter in plugins.load_all(GROUP).items()}


def _checked(name: str, adapter: Any, taken: Collection[str]) -> ChannelPlugin:
    channel, fault = _usable(adapter, Channel)
    if channel is None:
        return ChannelPlugin(name, fault=fault, lacks_extra=isinstance(adapter, MissingExtra))
    _, reply_fault = _usable(channel.replies, ReplyApi) if channel.replies is not None else (None, "")
    odd = [option.name for option in channel.options if not option.name.isidentifier() or option.name == "accounts"]
    if name in taken or not NAME.fullmatch(name):
        fault = "a channel cannot have this name; its author must choose another"
    elif odd:
        fault = f"an option cannot be called {odd[0]!r}; its author must choose another"
    elif reply_fault:
        fault = f"its replies cannot be used: {reply_fault}"
    return ChannelPlugin(name, fault=fault) if fault else ChannelPlugin(name, channel)


def _usable(adapter: Any, port: type) -> tuple[Any, str]:
    """The class, or why there is none."""
    if isinstance(adapter, TurntakeError):
        return None, str(adapter)
    if isinstance(adapter, Exception):
        return None, f"it cannot be imported ({type(adapter).__name__}: {adapter})"
    if isinstance(adapter, type) and issubclass(adapter, port):
        return adapter, ""
    return None, f"it is not a {port.__module__}.{port.__name__}"
