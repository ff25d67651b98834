"""Replies to Discord: into the channel, or to the interaction that asked. Pure."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from turntake.errors import GiveUp, RetryLater, SendFailed
from turntake.platforms.loose_json import object_in
from turntake.platforms.replies import ApiCall, ApiResponse, Recipient, ReplyApi

PASSING = frozenset({408, 425})
DEFERRED = frozenset({2, 5})
"""The types of interaction, command and form, after which Discord shows "thinking…" until that is replaced."""
WAIT_S = 5.0
"""How long to wait where Discord throttles without saying."""
AGENT = "DiscordBot (turntake, 1)"

_SECONDS = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,9})?")


class DiscordReplies(ReplyApi):
    """A repeated reply is known to Discord by its nonce for some minutes; only replies to interactions have none."""

    longest = 2_000
    # What is shown lasts ten seconds.
    typing_ms = 8_000

    def reply_call(self, to: Recipient, text: str, reply_id: str) -> ApiCall:
        message: dict[str, Any] = {"content": text, "allowed_mentions": {"parse": []}}
        asked = _interaction(to)
        if not asked:
            message |= {"nonce": _nonce(reply_id), "enforce_nonce": True} | _quote(to.reply_to)
            return self._call("POST", _channel(to, "messages"), message)
        webhook = f"/webhooks/{_part(asked['application_id'])}/{_part(asked['token'])}"
        if _is_deferred(asked) and reply_id.endswith("-0"):
            return self._call("PATCH", f"{webhook}/messages/@original", message)
        return self._call("POST", f"{webhook}?wait=true", message)

    def check(self, response: ApiResponse) -> str:
        said = object_in(response.body) or {}
        if 200 <= response.status < 300:
            return str(said.get("id") or "")
        if response.status == 429:
            raise RetryLater(_wait_s(said, response), "Discord throttles us (429).")
        if response.status >= 500 or response.status in PASSING:
            raise SendFailed(f"Discord failed ({response.status}).")
        raise GiveUp(f"Discord refuses the reply ({response.status}): {_words(said) or 'it gives no reason'}.")

    def typing_call(self, to: Recipient) -> ApiCall | None:
        """After a command Discord itself shows that an answer is coming."""
        return None if _is_deferred(_interaction(to)) else self._call("POST", _channel(to, "typing"), None)

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> ApiCall:
        headers = {"user-agent": AGENT, "content-type": "application/json"}
        if not path.startswith("/webhooks/"):
            headers["authorization"] = f"Bot {self._values['bot_token']}"
        written = b"" if body is None else msgspec.json.encode(body)
        return ApiCall(f"{self._values['api_base'].rstrip('/')}{path}", written, headers, method)


def _quote(message_id: str) -> dict[str, Any]:
    """A message that is gone by now is not quoted, and the reply is sent all the same."""
    if not message_id.isdecimal():
        return {}
    return {"message_reference": {"message_id": message_id, "fail_if_not_exists": False}}


def _interaction(to: Recipient) -> dict[str, Any]:
    """The interaction that the last message came by, if it can be answered."""
    asked = to.last.metadata.get("interaction") if to.last else None
    if not isinstance(asked, dict):
        return {}
    is_whole = all(isinstance(asked.get(name), str) and asked[name] for name in ("application_id", "token"))
    return asked if is_whole else {}


def _is_deferred(asked: dict[str, Any]) -> bool:
    kind = asked.get("type")
    return isinstance(kind, int) and kind in DEFERRED


def _channel(to: Recipient, what: str) -> str:
    return f"/channels/{_part(to.key.conversation)}/{what}"


def _part(id: str) -> str:
    return quote(id, safe="")


def _nonce(reply_id: str) -> str:
    """At most 25 characters, which is all that Discord takes."""
    return hashlib.blake2s(reply_id.encode(), digest_size=12).hexdigest()


def _words(said: dict[str, Any]) -> str:
    """Discord's code and words, with those about a single field, such as that the text is too long."""
    code, message = said.get("code"), said.get("message")
    parts = [str(message) if message else "", *_details(said.get("errors"), depth=4)]
    return "; ".join(filter(None, parts)) + (f" [{code}]" if code else "")


def _details(errors: object, depth: int) -> Iterator[str]:
    if not isinstance(errors, dict) or not depth:
        return
    for name, inner in errors.items():
        if name == "_errors" and isinstance(inner, list):
            yield from (str(each.get("message")) for each in inner if isinstance(each, dict))
        else:
            yield from _details(inner, depth - 1)


def _wait_s(said: dict[str, Any], response: ApiResponse) -> float:
    wait = said.get("retry_after")
    if isinstance(wait, int | float) and 0 <= wait < 10**6:
        return float(wait)
    written = response.headers.get("retry-after", "")
    return float(written) if _SECONDS.fullmatch(written) else WAIT_S
