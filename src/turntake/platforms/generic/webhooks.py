"""The channel for any sender that can post JSON: a widget, a bridge, a script. Pure.

Here is who is believed: three ways of signing. What a body may say is in `content.py`.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from turntake.errors import ConfigurationError, Forged
from turntake.platforms.channel import CallbackOptions, Channel, Delivery, Needs, Option, Request, WebhookAnswer
from turntake.platforms.generic.content import events_of
from turntake.standard_webhooks import secrets_in, signature, signing_key

TOLERANCE_MS = 300_000
"""Five minutes, as Standard Webhooks advises."""
MOST_SIGNATURES = 16  # one for each secret of a rotation; each is compared with each of ours
STANDARD, HUB, SHARED = SCHEMES = ("standard-webhooks", "hub-sha256", "shared-secret")
TAKEN = frozenset({"message", "edit", "delete", "typing", "stopped"})

_ID, _TIMESTAMP, _SIGNATURE = _HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")
_HUB = "x-hub-signature-256"
_SECRET = "x-webhook-secret"


class Generic(Channel):
    """Standard Webhooks, a hub's signature or the secret itself; a request is judged by the strongest it carries."""

    needs = Needs(public_url=False)
    signed_by = frozenset({_SIGNATURE, _HUB, _SECRET, "authorization"})
    takes_get = False
    callback = CallbackOptions(url="callback_url", secret="secret")
    options = (
        Option(
            "callback_url",
            "Where replies to the generic channel are posted.",
            use="reply",
            is_secret=False,
            is_shared=True,
        ),
        Option(
            "secret",
            "Checks the webhooks of the generic channel, and signs the replies posted to callback_url.",
            use="verify",
            is_chosen=True,
        ),
        Option(
            "scheme",
            f"The one way of signing that is accepted: {', '.join(SCHEMES)}. Unset: whichever a request carries.",
            is_secret=False,
        ),
    )

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self._scheme = self._values["scheme"].strip()
        if self._scheme not in ("", *SCHEMES):
            raise ConfigurationError(f"The scheme of the generic channel is one of {', '.join(SCHEMES)}, or unset.")
        secrets = secrets_in(self._values["secret"])
        self._texts = tuple(secret.encode() for secret in secrets)
        self._keys = tuple(signing_key(secret) for secret in secrets)

    def verify(self, request: Request, now: int) -> None:
        if not self._texts:
            raise Forged("No secret is set, so nobody can be believed: set TURNTAKE_GENERIC_SECRET.")
        scheme = self._scheme or _scheme_of(request)
        if scheme == STANDARD:
            self._verify_standard(request, now)
        elif scheme == HUB:
            self._verify_hub(request)
        else:
            self._verify_shared(request)

    def read(self, request: Request) -> Delivery:
        """The answer says how many of the items count, and how many mean nothing here."""
        # Only Standard Webhooks signs the id; by any other scheme a stranger could repeat a request under a new one.
        is_signed = (self._scheme or _scheme_of(request)) == STANDARD
        events = events_of(request.body, request.headers.get(_ID, "") if is_signed else "")
        taken = sum(event.kind in TAKEN for event in events)
        counts = {"accepted": taken, "ignored": len(events) - taken}
        return Delivery(tuple(events), WebhookAnswer(msgspec.json.encode(counts), "application/json"))

    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        message = {"conversation_id": sender, "message_id": id, "sender": sender, "text": text, "timestamp": now}
        body = msgspec.json.encode(message)
        headers = {"content-type": "application/json", **self._signed(id, body, now)}
        return Request("POST", url, headers, body)

    def _signed(self, id: str, body: bytes, now: int) -> dict[str, str]:
        key, text = (self._keys[0], self._texts[0]) if self._keys else (b"", b"")
        if self._scheme == HUB:
            return {_HUB: _hub_signature(text, body)}
        if self._scheme == SHARED:
            return {_SECRET: text.decode("latin-1")}
        webhook_id = "msg_" + hashlib.blake2s(id.encode(), digest_size=16).hexdigest()
        seconds = str(now // 1000)
        signed = signature(key, webhook_id.encode(), seconds.encode(), body)
        return {_ID: webhook_id, _TIMESTAMP: seconds, _SIGNATURE: signed}

    def _verify_standard(self, request: Request, now: int) -> None:
        id, seconds, signatures = (request.headers.get(name, "") for name in _HEADERS)
        if not (id and signatures and seconds.isascii() and seconds.isdigit() and len(seconds) <= 12):
            raise Forged(f"Standard Webhooks needs all of {', '.join(_HEADERS)}, the timestamp in whole seconds.")
        if abs(now - int(seconds) * 1000) > TOLERANCE_MS:
            raise Forged(f"{_TIMESTAMP} is more than five minutes from now: sign each try anew, and check both clocks.")
        right = [signature(key, _bytes(id), seconds.encode(), request.body).encode() for key in self._keys]
        if not _is_any(right, map(_bytes, signatures.split(" ", MOST_SIGNATURES)[:MOST_SIGNATURES])):
            raise Forged(f"{_SIGNATURE} is not that of this body: sign id.timestamp.body with TURNTAKE_GENERIC_SECRET.")

    def _verify_hub(self, request: Request) -> None:
        right = [_hub_signature(text, request.body).encode() for text in self._texts]
        if not _is_any(right, [_bytes(request.headers.get(_HUB, ""))]):
            raise Forged("X-Hub-Signature-256 is not that of this body: sign it raw with TURNTAKE_GENERIC_SECRET.")

    def _verify_shared(self, request: Request) -> None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        bearer = token.strip() if kind.lower() == "bearer" else ""
        if not _is_any(self._texts, map(_bytes, (bearer, request.headers.get(_SECRET, "")))):
            raise Forged(
                "The request carries no right secret: sign it by Standard Webhooks (webhook-id, -timestamp, "
                "-signature) or X-Hub-Signature-256, or send TURNTAKE_GENERIC_SECRET as a bearer token or in "
                "X-Webhook-Secret."
            )


def _scheme_of(request: Request) -> str:
    """What the request itself claims to be signed by. A weaker proof never makes up for a stronger one that fails."""
    if any(name in request.headers for name in _HEADERS):
        return STANDARD
    return HUB if _HUB in request.headers else SHARED


def _hub_signature(key: bytes, body: bytes) -> str:
    return "sha256=" + hmac.digest(key, body, hashlib.sha256).hex()


def _is_any(right: Sequence[bytes], proofs: Iterable[bytes]) -> bool:
    """Whether one of the proofs is right."""
    return any(hmac.compare_digest(proof, each) for proof in proofs for each in right)


def _bytes(value: str) -> bytes:
    """A header's value as bytes. A server reads each byte as one character; other text did not come over a network."""
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
