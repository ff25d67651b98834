"""Which channels are installed, and what each must be told. One that cannot be imported spoils nothing but itself."""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from turntake import plugins
from turntake.errors import TurntakeError
from turntake.platforms.channel import Channel, Option
from turntake.platforms.listener import Listener
from turntake.platforms.replies import ReplyApi

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
LISTEN = "listen"


class Installed(NamedTuple):
    """One channel with all its options, those of its listener among them, and why what is registered cannot be used.

    The listener itself is loaded when it is needed, since it may bring a library that is slow to import.
    """

    name: str
    channel: type[Channel] | None = None
    sender: type[ReplyApi] | None = None
    has_listener: bool = False
    options: tuple[Option, ...] = ()
    fault: str = ""
    sender_fault: str = ""
    listener_fault: str = ""


def channels(taken: Collection[str]) -> dict[str, Installed]:
    """Every registered channel by name; `taken` are names that mean something else to the settings."""
    found, senders = plugins.load_all("channels"), plugins.load_all("senders")
    listeners = plugins.names("listeners")
    return {
        name: _checked(_installed(name, adapter, senders, name in listeners), taken) for name, adapter in found.items()
    }


def listener_of(name: str) -> tuple[type[Listener] | None, str]:
    """The channel's listener, or why it cannot be used."""
    try:
        return _usable(plugins.load("listeners", name), Listener)
    # Whatever a stranger's module raises while it is imported, it is that module's trouble alone.
    except Exception as error:
        return _usable(error, Listener)


def _installed(name: str, adapter: Any, senders: Mapping[str, Any], has_listener: bool) -> Installed:
    channel, fault = _usable(adapter, Channel)
    sender, sender_fault = _usable(senders.get(name), ReplyApi)
    own = tuple(channel.options) if channel else ()
    found = Installed(name, channel, sender, has_listener, own, fault, sender_fault)
    if channel is None or not has_listener or any(option.use == LISTEN for option in own):
        return found
    return _with_options_of_listener(found)


def _with_options_of_listener(found: Installed) -> Installed:
    """A channel that does not say what its listener needs: then only the listener can."""
    listener, fault = listener_of(found.name)
    known = {option.name for option in found.options}
    more = [option for option in listener.options if option.name not in known] if listener else []
    heard = tuple(option._replace(use=LISTEN if option.use else "") for option in more)
    return found._replace(options=found.options + heard, listener_fault=fault)


def _usable(found: Any, port: type) -> tuple[Any, str]:
    """The class, or why there is none."""
    if found is None:
        return None, ""
    if isinstance(found, TurntakeError):
        return None, str(found)
    if isinstance(found, Exception):
        return None, f"it cannot be imported ({type(found).__name__}: {found})"
    if isinstance(found, type) and issubclass(found, port):
        return found, ""
    return None, f"it is no {port.__module__}.{port.__name__}"


def _checked(found: Installed, taken: Collection[str]) -> Installed:
    odd = [option.name for option in found.options if not option.name.isidentifier() or option.name == "accounts"]
    if found.name in taken or not NAME.fullmatch(found.name):
        return Installed(found.name, fault="a channel cannot have this name; its author must choose another")
    if odd:
        return Installed(found.name, fault=f"an option cannot be called {odd[0]!r}; its author must choose another")
    return found
