"""The port: what `turntake doctor` asks a platform. Pure: it writes calls and reads responses.

Every call changes nothing at the platform. The words of a finding are written here; the doctor makes the call, says
which variables the options are set by, and hides secrets that a platform repeats.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from turntake.finding import Level
from turntake.platforms.loose_json import object_in, text_at
from turntake.platforms.replies import ApiCall, ApiResponse
from turntake.retry_after import excerpt


class Verdict(NamedTuple):
    """What an answer means: how bad it is, and a sentence."""

    level: Level
    text: str


class WhoAmI(msgspec.Struct, frozen=True):
    """The question who we are.

    `options` are those whose values the call carries, so that a refusal can name them. `name_at` and `reason_at` are
    the places in the answer, written with dots, where the platform names us or says why it refuses; the first counts.
    """

    call: ApiCall
    options: tuple[str, ...]
    name_at: tuple[str, ...]
    reason_at: tuple[str, ...]

    def read(self, response: ApiResponse, variables: str) -> Verdict:
        """`variables` are how the operator sets the options: "TURNTAKE_SLACK_BOT_TOKEN"."""
        payload = object_in(response.body) or {}
        if response.status >= 500 or response.status == 429:
            return Verdict("warn", f"the platform answered {response.status}; ask it again later")
        if response.status >= 300 or payload.get("ok") is False or not payload:
            reason = _first(payload, self.reason_at) or response.status
            return Verdict("fail", f"the platform refuses {variables}: {reason}")
        return Verdict("ok", f"the platform knows us as {_first(payload, self.name_at) or 'a valid account'}")


class WebhookCheck(msgspec.Struct, frozen=True):
    """The question which address the platform calls."""

    call: ApiCall
    read: Callable[[ApiResponse], Verdict]


def api_get(values: Mapping[str, str], path: str, headers: Mapping[str, str]) -> ApiCall:
    """A GET below the account's `api_base`."""
    return ApiCall(f"{values['api_base'].rstrip('/')}/{path}", headers=headers, method="GET")


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _first(payload: dict[str, Any], paths: tuple[str, ...]) -> str:
    texts = (excerpt(text_at(payload, *path.split("."))) for path in paths)
    return next(filter(None, texts), "")
