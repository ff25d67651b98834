"""The key that isolates conversations from each other."""

import hashlib
import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

PART_BYTES = 256  # longer than any id of a platform
DEFAULT_TENANT = "default"
"""The tenant of a message whose sender names none."""
DEFAULT_CHANNEL = "generic"
"""The channel of a message whose sender names none."""
CACHED = 8_192  # as many conversations as are busy in one process at a time

_UNSAFE = re.compile(rb"[^A-Za-z0-9._@+-]")
_ESCAPED = re.compile(rb"~([0-9A-F]{2})")


class ConversationKey(NamedTuple):
    """Who talks to whom about what. Two keys share a buffer only if all five parts are equal.

    Written as `tenant:channel:account:conversation[:topic]`. Every byte that could be taken for syntax
    (in a URL, a Redis key, a shell) is written as `~XX`, so no two keys have one spelling.
    """

    conversation: str
    tenant: str = DEFAULT_TENANT
    channel: str = DEFAULT_CHANNEL
    account: str = "default"
    topic: str = ""

    @classmethod
    def of(
        cls, conversation: str | int, *, tenant: str = "", channel: str = "", account: str = "", topic: str = ""
    ) -> "ConversationKey":
        """The key with normalised parts; an empty part means its default. Raises ValueError and says which part.

        An integer, which several platforms use for a chat, is taken as text.
        """
        try:
            return _made(conversation, tenant, channel, account, topic)
        except TypeError:  # a list or a dict, which cannot be looked up
            raise ValueError("A part of the conversation's key is neither a text nor an integer.") from None

    @classmethod
    def parse(cls, encoded: str) -> "ConversationKey":
        """The key behind its spelling. Raises ValueError unless `str()` would give the same spelling again."""
        return _parsed(encoded)

    def __str__(self) -> str:
        return _spelled(self)

    @property
    def shard_hash(self) -> int:
        """0 to 65,535, spread evenly: by it a store in shards knows which one keeps the conversation."""
        return _shard_hash(self)


# A burst names its conversation again and again, and many conversations one channel: the caches make that nearly free.
# By type too, since True and 1 would be one entry.
@lru_cache(CACHED, typed=True)
def _made(conversation: str | int, tenant: str, channel: str, account: str, topic: str) -> ConversationKey:
    return ConversationKey(_normal("conversation", conversation), *_around(tenant, channel, account, topic))


@lru_cache(CACHED, typed=True)
def _around(tenant: str, channel: str, account: str, topic: str) -> tuple[str, str, str, str]:
    """All parts but the conversation."""
    return (
        _normal("tenant", _given(tenant, DEFAULT_TENANT)),
        _normal("channel", _given(channel, DEFAULT_CHANNEL)),
        _normal("account", _given(account, "default")),
        _normal("topic", topic) if _given(topic, "") != "" else "",
    )


def _given(part: str | None, default: str) -> str:
    return default if part is None or part == "" else part


@lru_cache(CACHED)
def _spelled(key: ConversationKey) -> str:
    conversation, tenant, channel, account, topic = key
    spelled = f"{_spelled_start(tenant, channel, account)}:{_escape(conversation)}"
    return f"{spelled}:{_escape(topic)}" if topic else spelled


@lru_cache(CACHED)
def _spelled_start(*parts: str) -> str:
    return ":".join(map(_escape, parts))


@lru_cache(CACHED)
def _shard_hash(key: ConversationKey) -> int:
    return int.from_bytes(hashlib.blake2s(str(key).encode(), digest_size=2).digest(), "big")


@lru_cache(CACHED)
def _parsed(encoded: str) -> ConversationKey:
    parts = encoded.split(":")
    if "~" in encoded:
        parts = [_unescape(part) for part in parts]
    if len(parts) not in (4, 5):
        raise ValueError("A conversation key reads tenant:channel:account:conversation, then :topic if any.")
    tenant, channel, account, conversation = parts[:4]
    topic = parts[4] if len(parts) == 5 else ""
    key = ConversationKey.of(conversation, tenant=tenant, channel=channel, account=account, topic=topic)
    if str(key) != encoded:
        raise ValueError("This is not the canonical spelling of a conversation key.")
    return key


def _normal(name: str, part: object) -> str:
    if type(part) is int:
        part = str(part)
    if not isinstance(part, str):
        raise ValueError(f"`{name}` is of type {type(part).__name__}: write a text or an integer.")
    if part.isascii() and part.isprintable():
        normal = part
    else:
        normal = unicodedata.normalize("NFC", part)
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in normal):
            raise ValueError(f"`{name}` contains control characters; send printable text.")
    if not normal:
        raise ValueError(f"`{name}` is empty; it names the conversation's buffer and cannot be blank.")
    if len(normal) * 4 > PART_BYTES and len(normal.encode()) > PART_BYTES:
        raise ValueError(f"`{name}` is longer than {PART_BYTES} bytes; send a shorter id or its hash.")
    return normal


def _escape(part: str) -> str:
    if part.isascii() and part.isalnum():
        return part
    raw = part.encode()
    if not _UNSAFE.search(raw):
        return part
    return _UNSAFE.sub(lambda match: b"~%02X" % match[0][0], raw).decode()


def _unescape(part: str) -> str:
    return _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), part.encode()).decode()
