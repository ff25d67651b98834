"""Standard Webhooks (https://www.standardwebhooks.com): its secrets, its signature, and the headers of what we send.

Pure: time is an argument. What comes in is checked and what leaves is signed by the same functions.
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
    """The secrets in a setting. During a rotation there may be several, separated by commas.

    White space separates them too, but only before `whsec_`; elsewhere it belongs to a secret.
    """
    return tuple(part.strip() for part in _BETWEEN.split(written) if part.strip())


def signing_key(secret: str) -> bytes:
    """The key behind a secret: what follows `whsec_` in base64; any other text is the key itself."""
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


class Signer:
    """Signs with every secret it holds, so that a receiver can change from one secret to the next.

    `secrets` are written as `secrets_in` reads them. Without secrets nothing is signed.
    """

    def __init__(self, secrets: str = "") -> None:
        self._keys = tuple(signing_key(secret) for secret in secrets_in(secrets))

    def headers(self, id: str, body: bytes, now: int) -> dict[str, str]:
        """The headers for this body. `id` is the same on every try; the timestamp is that of this one."""
        seconds = str(now // 1000)
        headers = {"webhook-id": id, "webhook-timestamp": seconds}
        if self._keys:
            signatures = (signature(key, id.encode(), seconds.encode(), body) for key in self._keys)
            headers["webhook-signature"] = " ".join(signatures)
        return headers
