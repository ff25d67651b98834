"""What an installation gives out and knows again: completion tokens, and cursors of those who see some tenants only.

How this works: one secret, kept in the store, is the key of a hash over what is given out (HMAC), with a word before it
that says what for, so that nothing of one kind is taken for another. A completion token names its turn, and the hash
shows that we wrote it: to check it takes no look into the store.

A cursor says where a listing has come to, and that may be a conversation of a tenant that its holder must not know of.
So it is also made unreadable: it is combined with bytes that only the secret yields. These are made from the hash of
the cursor itself, which stands in front of it, so that two cursors never share them (the construction of RFC 5297 with
another hash).
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Collection

TOKEN_PREFIX = "ttc_"
SECRET_BYTES = 32
TAG_BYTES = 16


def completion_token(secret: bytes, turn_id: str) -> str:
    """The same on every attempt, since a turn that is handed over again is the same turn."""
    return f"{TOKEN_PREFIX}{turn_id}.{_text(_mac(secret, 'completion', turn_id.encode()))}"


def turn_of_token(secret: bytes, token: bytes) -> str:
    """The turn that a token is for; empty if we did not write it."""
    turn_id, _, _ = token.decode("latin-1").removeprefix(TOKEN_PREFIX).rpartition(".")
    ours = completion_token(secret, turn_id).encode("latin-1", "replace")
    return turn_id if secret and turn_id and hmac.compare_digest(ours, token) else ""


def seal_cursor(secret: bytes, tenants: Collection[str], cursor: str) -> str:
    """A cursor that only these tenants can use, and nobody can read."""
    tag = _cursor_tag(secret, tenants, cursor.encode())
    return _text(tag + _combined(secret, tag, cursor.encode()))


def open_cursor(secret: bytes, tenants: Collection[str], sealed: str) -> str:
    """The cursor again. Raises ValueError unless it was sealed for these tenants."""
    try:
        raw = base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
    except (binascii.Error, ValueError):
        raise ValueError("This cursor comes from no listing.") from None
    tag, cursor = raw[:TAG_BYTES], _combined(secret, raw[:TAG_BYTES], raw[TAG_BYTES:])
    if not hmac.compare_digest(tag, _cursor_tag(secret, tenants, cursor)):
        raise ValueError("This cursor comes from no listing of these tenants.")
    return cursor.decode()


def _cursor_tag(secret: bytes, tenants: Collection[str], cursor: bytes) -> bytes:
    # No tenant's name holds a control character, so that the zero bytes keep them and the cursor apart.
    words = "\0".join([*sorted(tenants), ""]).encode()
    return _mac(secret, "cursor", words + b"\0" + cursor)[:TAG_BYTES]


def _combined(secret: bytes, tag: bytes, data: bytes) -> bytes:
    key = hashlib.shake_256(_mac(secret, "cursor bytes", tag)).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, key, strict=True))


def _mac(secret: bytes, use: str, data: bytes) -> bytes:
    return hmac.digest(secret, f"turntake {use}\0".encode() + data, hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
