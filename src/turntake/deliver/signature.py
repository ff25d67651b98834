"""Standard Webhooks signatures for what leaves: https://www.standardwebhooks.com. Pure; time is an argument."""

from turntake.standard_webhooks import secrets_in, signature, signing_key


class Signer:
    """Signs with every secret it holds, so that a receiver can change from one to the next.

    `secrets` are written as in `turntake/secret.py`. Without secrets nothing is signed.
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
