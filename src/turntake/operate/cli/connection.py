"""What every command that talks to a server shares: its address, its key, and how times are put into words."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from turntake.clock import Clock
from turntake.errors import ConfigurationError
from turntake.http.hosts import is_loopback
from turntake.instants import to_ms
from turntake.operate.cli.flags import option, tell_of_file
from turntake.operate.cli.output import duration
from turntake.operate.client import Client
from turntake.operate.made_key import find_key
from turntake.operate.options.sources import load
from turntake.rules.key import ConversationKey

Url = Annotated[str | None, option("The server. [by the settings: http://127.0.0.1:8080]", "URL")]
Key = Annotated[
    str | None,
    option("Its API key. [for this machine's server, the first of TURNTAKE_API_KEYS, or the one it made]", "KEY"),
]


@contextmanager
def connected(url: str | None, key: str | None, config: Path | None = None) -> Iterator[Client]:
    """A client for the server that was named, or for the one that `turntake serve` would start here."""
    with Client(*destination(url, key, config)) as client:
        yield client


def destination(url: str | None, key: str | None, config: Path | None = None) -> tuple[str, str]:
    """The server's address and key. A key from the settings is for this machine's server, and for no other.

    The key that a server made if it was given none is for servers on this machine.
    """
    options = load(config=config)
    tell_of_file(options)
    ours, keys = options.own_url, options.api_keys
    is_ours = url is None or url.rstrip("/") == ours
    if key or (not is_ours and (keys or not _is_here(url or ""))):
        return url or ours, key or ""
    return url or ours, keys[0] if keys else find_key(options.store)


def _is_here(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def full_key(conversation: str) -> str:
    """The key as listed; a name without colons is short for a conversation whose other parts have their defaults."""
    try:
        return conversation if ":" in conversation else str(ConversationKey.of(conversation))
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def until(at: str | None, clock: Clock) -> str:
    """`in 2.1 s`, `now`, or nothing."""
    if at is None:
        return ""
    left = to_ms(at) - clock.now()
    return f"in {duration(left)}" if left > 0 else "now"


def since(at: str, clock: Clock) -> str:
    return f"{duration(max(0, clock.now() - to_ms(at)))} ago"
