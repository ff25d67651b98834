"""What WhatsApp, Messenger and Instagram share: the handshake, the signature, reading JSON of any shape."""

import hmac
import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from turntake.errors import ConfigurationError, Forged, Unreadable
from turntake.platforms.channel import Channel, ChatEvent, Option, Request, WebhookAnswer, keys_in
from turntake.platforms.loose_json import at, object_in, objects_at, text_at

SIGNATURE = "x-hub-signature-256"
GRAPH = "https://graph.facebook.com/v25.0"

_FIRST_MILLISECONDS = 10**12
_YEAR_10000 = 253_402_300_800_000
_EXACT = 2**53
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")

APP_SECRET = Option("app_secret", "The app secret, from App settings > Basic: it signs every webhook.", use="verify")
VERIFY_TOKEN = Option("verify_token", "A word of your own, also typed into the webhook's settings.", use="verify")


def api_base(default: str) -> Option:
    return Option("api_base", "Where Meta's API begins, with its version.", is_secret=False, default=default)


class MetaChannel(Channel):
    """One Meta app's webhooks for one product, whose name in them is `product`."""

    product: ClassVar[str]
    name: ClassVar[str]

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given)
        if not self._values["api_base"].startswith(("https://", "http://")):
            raise ConfigurationError(f"{self._variable('api_base')} is no address; write it like {GRAPH}.")

    def verify(self, request: Request, now: int) -> None:
        if request.method == "GET":
            self._verify_handshake(request)
        else:
            self._verify_signature(request)

    def events_in(self, request: Request) -> list[ChatEvent]:
        if request.method == "GET":
            return []
        found = decoded(request.body)
        if found.get("object") != self.product:
            return []
        return [event for entry in objects_at(found, "entry") for event in self._events_of(entry)]

    def answer(self, request: Request) -> WebhookAnswer:
        if request.method != "GET":
            return WebhookAnswer()
        return WebhookAnswer(request.query.get("hub.challenge", "").encode(errors="replace"))

    @abstractmethod
    def _events_of(self, entry: dict[str, Any]) -> Iterable[ChatEvent]:
        """What one entry of the webhook says, in order."""

    def _signed(self, url: str, entry: dict[str, Any]) -> Request:
        # Meta escapes what is not ASCII, and slashes; the signature covers the bytes as they are sent.
        body = (
            json.dumps({"object": self.product, "entry": [entry]}, separators=(",", ":")).replace("/", "\\/").encode()
        )
        key = next(iter(keys_in(self._values["app_secret"])), b"")
        headers = {"content-type": "application/json", SIGNATURE: signature(key, body).decode()}
        return Request("POST", url, headers, body)

    def _verify_handshake(self, request: Request) -> None:
        tokens = keys_in(self._values["verify_token"])
        if not tokens:
            raise Forged(f"No verify token is set, so no handshake is believed: {self._advice('verify_token')}", 403)
        query = request.query
        said = query.get("hub.verify_token", "").encode(errors="replace")
        if query.get("hub.mode") != "subscribe" or not _is_any_of(said, tokens):
            raise Forged(f"The handshake's verify token is not ours: {self._advice('verify_token')}", 403)

    def _verify_signature(self, request: Request) -> None:
        keys = keys_in(self._values["app_secret"])
        if not keys:
            raise Forged(f"No app secret is set, so no webhook is believed: {self._advice('app_secret')}")
        said = request.headers.get(SIGNATURE, "").encode(errors="replace")
        if not _is_any_of(said, [signature(key, request.body) for key in keys]):
            raise Forged(f"The signature is missing or not by our app secret: {self._advice('app_secret')}")

    def _advice(self, option: str) -> str:
        return f"set {self._variable(option)} to what the Meta app dashboard has."

    def _variable(self, option: str) -> str:
        return f"TURNTAKE_{self.name}_{option}".upper()


def signature(key: bytes, body: bytes) -> bytes:
    """The value of X-Hub-Signature-256 for a body as sent."""
    return b"sha256=" + hmac.new(key, body, "sha256").hexdigest().encode()


def _is_any_of(said: bytes, right: Sequence[bytes]) -> bool:
    # All are compared, whichever is right, so that the time taken tells nothing.
    return sum(hmac.compare_digest(said, one) for one in right) > 0


def decoded(body: bytes) -> dict[str, Any]:
    """The object in a body."""
    found = object_in(body)
    if found is None:
        raise Unreadable("The body is no JSON object in UTF-8, as every webhook of Meta's is.")
    return found


def number_at(found: Any, *path: str) -> float | None:
    """The number at the path, if JSON can carry it on."""
    value = at(found, *path)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_EXACT < value < _EXACT:
        return None
    return value


def texts_at(found: Any, names: Iterable[str]) -> dict[str, str]:
    """The named texts that are there, and no other."""
    return {name: said for name in names if (said := text_at(found, name))}


def extras(**found: Any) -> dict[str, Any]:
    """What is there of all that might be."""
    return {name: value for name, value in found.items() if value or (value == 0 and value is not False)}


def instant(written: Any) -> int | None:
    """The time in ms, however it was written: seconds or ms, a number, a text or ISO 8601; else None."""
    if isinstance(written, str):
        return _instant_in(written.strip())
    if isinstance(written, bool) or not isinstance(written, int | float) or not 0 < written < _YEAR_10000:
        return None
    return int(written) if written >= _FIRST_MILLISECONDS else _believable(int(written * 1000))


def _instant_in(text: str) -> int | None:
    if _NUMBER.fullmatch(text):
        return instant(float(text))
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    zoned = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    return _believable(round(zoned.timestamp() * 1000))


def _believable(at_ms: int) -> int | None:
    return at_ms if 0 < at_ms < _YEAR_10000 else None
