"""Signing secrets as operators write them, and what Standard Webhooks makes of them. Pure.

https://www.standardwebhooks.com: what comes in is checked, and what leaves is signed, by the same rules.
"""

import base64
import binascii
import hashlib
import hmac
import re

from turntake.errors import ConfigurationError

PREFIX = "whsec_"

_BETWEEN = re.compile(rf",|\s+(?={PREFIX})")


def secrets_in(written: str) -> tuple[str, ...]:
    """The secrets in a setting, which may be several during a rotation: commas part them.

    So does white space before `whsec_`; elsewhere it belongs to a secret.
    """
    return tuple(part.strip() for part in _BETWEEN.split(written) if part.strip())


def signing_key(secret: str) -> bytes:
    """What is signed with: after `whsec_` comes base64; any other text is itself the key."""
    if not secret.startswith(PREFIX):
        return secret.encode()
    written = secret.removeprefix(PREFIX).rstrip("=")
    try:
        key = base64.b64decode(written + "=" * (-len(written) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ConfigurationError(
            f"A signing secret that starts with {PREFIX} continues in base64, and this one does not: "
            f"correct it, or make one with `echo {PREFIX}$(openssl rand -base64 32)`."
        )
    return key


def signature(key: bytes, id: bytes, seconds: bytes, body: bytes) -> str:
    """One entry of the header `webhook-signature`."""
    signed = b".".join((id, seconds, body))
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
