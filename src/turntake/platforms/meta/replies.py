"""Replies through Meta's Graph API: the call, and what its errors mean. Pure."""

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from turntake.errors import GiveUp, RetryLater, SendFailed
from turntake.platforms.loose_json import object_in
from turntake.platforms.replies import ApiCall, ApiResponse, ReplyApi

EXCERPT = 300
LONGEST_PAUSE_S = 3_600
PAUSE_S = 5

# Seconds to wait, by the code of whatever is exhausted, where Meta does not say how long.
THROTTLED = {
    4: 60,  # the app's calls
    17: 60,  # the user's calls
    32: 60,  # the page's calls
    613: 60,  # calls of this kind
    80002: 60,  # Instagram's calls
    80006: 60,  # Messenger's calls
    80007: 60,  # the WhatsApp business account's calls
    130429: 5,  # the number's messages a second
    131048: 600,  # people blocked or reported us
    131056: 6,  # this pair's messages: one in six seconds
    131057: 60,  # the number is in maintenance
    133016: 600,  # registrations
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


class Failure(msgspec.Struct, frozen=True):
    """The `error` of a response, whatever its shape. `codes` are the code and its subcode."""

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

    name: ClassVar[str]

    def check(self, response: ApiResponse) -> str:
        said = object_in(response.body) or {}
        taken = self._id_in(said) if 200 <= response.status < 300 and "error" not in said else ""
        if not taken:
            raise self._error(response, said)
        return taken

    @abstractmethod
    def _id_in(self, said: Mapping[str, Any]) -> str:
        """The id of the message that was taken, in the answer to it; "" if there is none."""

    def _call(self, path: str, body: Mapping[str, Any]) -> ApiCall:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self._token}"}
        return ApiCall(f"{self._values['api_base'].rstrip('/')}/{path}", msgspec.json.encode(body), headers)

    @property
    def _token(self) -> str:
        """While two are configured for a rotation, the first is the one that is valid now."""
        return self._values["access_token"].partition(",")[0].strip()

    def _error(self, response: ApiResponse, said: Mapping[str, Any]) -> Exception:
        failure = failure_in(said)
        if failure is None:
            return _wordless(self.name, response)
        # Meta quotes a token that it cannot read.
        what = f"{self.name} answered {response.status}: {failure}".replace(self._token, "…")
        if response.status == 429 or failure.codes & THROTTLED.keys():
            return RetryLater(pause_s(response, failure.code), what)
        if response.status >= 500 or failure.is_transient or not failure.codes & (FINAL | WINDOW):
            return SendFailed(what)
        return GiveUp(f"{what} {self._advice(failure)}".strip())

    def _advice(self, failure: Failure) -> str:
        """What the operator can do about it."""
        if failure.codes & WINDOW:
            return "The person's last message is more than 24 hours old: only they can open the chat again."
        if failure.codes & TOKEN:
            return f"Set TURNTAKE_{self.name.upper()}_ACCESS_TOKEN to a new token."
        if failure.codes & PERMISSION:
            return "Check the app's permissions, and that it is live or the person is one of its testers."
        return ""


def failure_in(said: Mapping[str, Any]) -> Failure | None:
    """What Meta complains about; None if it does not."""
    error = said.get("error")
    if not isinstance(error, dict):
        return None
    data = error.get("error_data")
    details = data.get("details") if isinstance(data, dict) else data
    words = ": ".join(dict.fromkeys(part for part in (error.get("message"), details) if part and isinstance(part, str)))
    return Failure(
        " ".join(words.split())[:EXCERPT],
        _whole(error.get("code")),
        _whole(error.get("error_subcode")),
        str(error.get("fbtrace_id") or "")[:64],
        error.get("is_transient") is True,
    )


def pause_s(response: ApiResponse, code: int | None) -> int:
    """How long to wait: what Meta says, or else what is usual for this code."""
    asked = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", asked):
        return min(max(int(asked), 1), LONGEST_PAUSE_S)
    return THROTTLED.get(code or 0, PAUSE_S)


def _wordless(name: str, response: ApiResponse) -> Exception:
    what = f"{name} answered {response.status}, without an id and without saying why."
    return RetryLater(pause_s(response, None), what) if response.status == 429 else SendFailed(what)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
