"""Standard Webhooks signatures for what leaves: https://www.standardwebhooks.com. Pure; time is an argument."""

import base64
import binascii
import hashlib
import hmac

from turntake.errors import ConfigurationError

PREFIX = "whsec_"


class Signer:
    """Signs with every secret it holds, so that a receiver can change from one to the next.

    `secrets` are separated by spaces. After `whsec_` comes base64; any other text is itself the key.
    Without secrets nothing is signed.
    """

    def __init__(self, secrets: str = "") -> None:
        self._keys = tuple(_key(secret) for secret in secrets.split())

    def headers(self, id: str, body: bytes, now: int) -> dict[str, str]:
        """The headers for this body. `id` is the same on every try; the timestamp is that of this one."""
        seconds = str(now // 1000)
        headers = {"webhook-id": id, "webhook-timestamp": seconds}
        if self._keys:
            signed = b".".join((id.encode(), seconds.encode(), body))
            headers["webhook-signature"] = " ".join(_signature(key, signed) for key in self._keys)
        return headers


def _key(secret: str) -> bytes:
    if not secret.startswith(PREFIX):
        return secret.encode()
    written = secret.removeprefix(PREFIX).rstrip("=")
    try:
        key = base64.b64decode(written + "=" * (-len(written) % 4), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ConfigurationError(
            f"A signing secret that starts with {PREFIX} continues in base64, and this one does not: "
            f"correct it, or make one with `echo {PREFIX}$(openssl rand -base64 32)`."
        )
    return key


def _signature(key: bytes, signed: bytes) -> str:
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
