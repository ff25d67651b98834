"""What the webhooks of WhatsApp, Messenger and Instagram share: the handshake, the signature, the envelope. Pure."""

import hmac
import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from turntake.errors import ConfigurationError, Forged
from turntake.platforms.channel import Channel, ChatEvent, Delivery, Option, Request, WebhookAnswer, keys_in
from turntake.platforms.check import WhoAmI
from turntake.platforms.loose_json import objects_at, read_object
from turntake.platforms.meta import check

SIGNATURE = "x-hub-signature-256"
GRAPH = "https://graph.facebook.com/v25.0"

APP_SECRET = Option("app_secret", "The app secret, from App settings > Basic: it signs every webhook.", use="verify")
VERIFY_TOKEN = Option(
    "verify_token", "A word of your own, also typed into the webhook's settings.", use="verify", is_for_handshake=True
)


def api_base(default: str) -> Option:
    return Option("api_base", "Where Meta's API begins, with its version.", is_secret=False, default=default)


class MetaChannel(Channel):
    """One Meta app's webhooks for one product, whose name in them is `product`."""

    product: ClassVar[str]
    signed_by = frozenset({SIGNATURE})

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        if not self._values["api_base"].startswith(("https://", "http://")):
            raise ConfigurationError(f"{self._variable('api_base')} is not an address; write it like {GRAPH}.")

    def verify(self, request: Request, now: int) -> None:
        if request.method == "GET":
            self._verify_handshake(request)
        else:
            self._verify_signature(request)

    def read(self, request: Request) -> Delivery:
        if request.method == "GET":
            return Delivery(answer=WebhookAnswer(request.query.get("hub.challenge", "").encode(errors="replace")))
        payload = read_object(request.body, "Meta")
        entries = objects_at(payload, "entry") if payload.get("object") == self.product else []
        return Delivery(tuple(event for entry in entries for event in self._events_of(entry)))

    def whoami(self) -> WhoAmI | None:
        return check.whoami(self._values)

    @abstractmethod
    def _events_of(self, entry: dict[str, Any]) -> Iterable[ChatEvent]:
        """What one entry of the webhook says, in order."""

    def _signed(self, url: str, entry: dict[str, Any]) -> Request:
        # Meta escapes what is not ASCII, and slashes; the signature covers the bytes as they are sent.
        envelope = json.dumps({"object": self.product, "entry": [entry]}, separators=(",", ":"))
        body = envelope.replace("/", "\\/").encode()
        key = next(iter(keys_in(self._values["app_secret"])), b"")
        headers = {"content-type": "application/json", SIGNATURE: signature(key, body).decode()}
        return Request("POST", url, headers, body)

    def _verify_handshake(self, request: Request) -> None:
        tokens = keys_in(self._values["verify_token"])
        if not tokens:
            raise Forged(f"No verify token is set, so no handshake is believed: {self._advice('verify_token')}", 403)
        query = request.query
        token = query.get("hub.verify_token", "").encode(errors="replace")
        if query.get("hub.mode") != "subscribe" or not _is_any_of(token, tokens):
            raise Forged(f"The handshake's verify token is not ours: {self._advice('verify_token')}", 403)

    def _verify_signature(self, request: Request) -> None:
        keys = keys_in(self._values["app_secret"])
        if not keys:
            raise Forged(f"No app secret is set, so no webhook is believed: {self._advice('app_secret')}")
        header = request.headers.get(SIGNATURE, "").encode(errors="replace")
        if not _is_any_of(header, [signature(key, request.body) for key in keys]):
            raise Forged(f"The signature is missing or not by our app secret: {self._advice('app_secret')}")

    def _advice(self, option: str) -> str:
        return f"set {self._variable(option)} to what the Meta app dashboard has."

    def _variable(self, option: str) -> str:
        return f"TURNTAKE_{self.title}_{option}".upper()


def signature(key: bytes, body: bytes) -> bytes:
    """The value of X-Hub-Signature-256 for a body as sent."""
    return b"sha256=" + hmac.new(key, body, "sha256").hexdigest().encode()


def _is_any_of(value: bytes, right: Sequence[bytes]) -> bool:
    # All are compared, whichever is right, so that the time taken tells nothing.
    return sum(hmac.compare_digest(value, one) for one in right) > 0
