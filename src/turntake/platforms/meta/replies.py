"""Replies through Meta's Graph API: the call, and what its errors mean. Pure."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from turntake.errors import GiveUp, SendFailed
from turntake.platforms.loose_json import at, integer_at, object_in, text_at
from turntake.platforms.replies import ApiCall, ApiResponse, ReplyApi, retry_later
from turntake.retry_after import excerpt

PAUSE_MS = 5_000
"""For a limit that Meta neither names nor times: about as long as the shortest of those below."""
# How long to wait, by the code of whatever is exhausted, where Meta does not say: as its documentation advises.
THROTTLED_MS = {
    4: 60_000,  # the app's calls
    17: 60_000,  # the user's calls
    32: 60_000,  # the page's calls
    613: 60_000,  # calls of this kind
    80002: 60_000,  # Instagram's calls
    80006: 60_000,  # Messenger's calls
    80007: 60_000,  # the WhatsApp business account's calls
    130429: 5_000,  # the number's messages per second
    131048: 600_000,  # people blocked or reported us
    131056: 6_000,  # this pair's messages: one in six seconds
    131057: 60_000,  # the number is in maintenance
    133016: 600_000,  # registrations
}
# Nothing that happens by itself makes Meta take the same reply later.
FINAL = {
    *(0, 3, 10, 33, 100, 102, 104, 190, 368, 463, 467, 551),
    *range(200, 300),
    *(130472, 130497, 131005, 131008, 131009, 131021, 131026, 131030, 131031, 131037, 131042, 131045),
    *(131047, 131049, 131050, 131051, 132000, 133010, 133015, 135000, 1545041),
}
TOKEN = {0, 102, 104, 190, 463, 467}
WINDOW = {131047, 2018278, 2018065, 2534022}
PERMISSION = {3, 10, 131005, *range(200, 300)}


class MetaError(msgspec.Struct, frozen=True):
    """The `error` of a response, whatever its shape."""

    words: str = ""
    code: int | None = None
    subcode: int | None = None
    trace: str = ""
    is_transient: bool = False

    @property
    def codes(self) -> set[int | None]:
        return {self.code, self.subcode}

    def __str__(self) -> str:
        number = "/".join(str(code) for code in (self.code, self.subcode) if code is not None)
        parts = (f"code {number}" if number else "", f"trace {self.trace}" if self.trace else "")
        return f"{self.words} ({', '.join(filter(None, parts))})"


class MetaReplies(ReplyApi):
    """The access token goes into a header, since URLs end up in logs."""

    title: ClassVar[str]

    def check(self, response: ApiResponse) -> str:
        payload = object_in(response.body) or {}
        id = self._id_in(payload) if response.is_success and "error" not in payload else ""
        if not id:
            raise self._error(response, payload)
        return id

    @abstractmethod
    def _id_in(self, payload: Mapping[str, Any]) -> str:
        """The id of the message that was taken; "" if there is none."""

    def _call(self, path: str, body: Mapping[str, Any]) -> ApiCall:
        headers = {"content-type": "application/json", "authorization": f"Bearer {access_token(self._values)}"}
        return ApiCall(f"{self._values['api_base'].rstrip('/')}/{path}", msgspec.json.encode(body), headers)

    def _error(self, response: ApiResponse, payload: Mapping[str, Any]) -> Exception:
        asked, error = response.headers.get("retry-after"), error_in(payload)
        if error is None:
            text = f"{self.title} answered {response.status}, without an id and without saying why."
            return retry_later(text, asked, PAUSE_MS) if response.status == 429 else SendFailed(text)
        # Meta quotes a token that it cannot read.
        text = f"{self.title} answered {response.status}: {error}".replace(access_token(self._values), "…")
        if response.status == 429 or error.codes & THROTTLED_MS.keys():
            return retry_later(text, asked, THROTTLED_MS.get(error.code or 0, PAUSE_MS))
        if response.status >= 500 or error.is_transient or not error.codes & (FINAL | WINDOW):
            return SendFailed(text)
        advice = self._advice(error)
        return GiveUp(f"{text}. {advice}" if advice else text)

    def _advice(self, error: MetaError) -> str:
        """What the operator can do about it."""
        if error.codes & WINDOW:
            return "The person's last message is more than 24 hours old: only they can open the chat again."
        if error.codes & TOKEN:
            return f"Set TURNTAKE_{self.title.upper()}_ACCESS_TOKEN to a new token."
        if error.codes & PERMISSION:
            return "Check the app's permissions, and that it is live or the person is one of its testers."
        return ""


def access_token(values: Mapping[str, str]) -> str:
    """While two are configured for a rotation, the first is the one that is valid now."""
    return values["access_token"].partition(",")[0].strip()


def error_in(payload: Mapping[str, Any]) -> MetaError | None:
    """What Meta complains about; None if it does not."""
    error = payload.get("error")
    if not isinstance(error, dict):
        return None
    details = text_at(error, "error_data", "details") or text_at(error, "error_data")
    return MetaError(
        excerpt(": ".join(dict.fromkeys(filter(None, (text_at(error, "message"), details))))),
        integer_at(error, "code"),
        integer_at(error, "error_subcode"),
        text_at(error, "fbtrace_id")[:64],
        at(error, "is_transient") is True,
    )
