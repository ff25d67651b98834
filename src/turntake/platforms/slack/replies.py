"""Replies to Slack: chat.postMessage, and a status in threads while the answer is written. Pure."""

from typing import Any

import msgspec

from turntake.errors import GiveUp, SendFailed
from turntake.platforms.check import bearer
from turntake.platforms.loose_json import object_in, text_at
from turntake.platforms.replies import ApiCall, ApiResponse, Recipient, ReplyApi, retry_later

THROTTLED = frozenset({"ratelimited", "rate_limited"})
PASSING = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable"})
HINTS = {
    "channel_not_found": "invite the bot to the channel",
    "not_in_channel": "invite the bot to the channel",
    "invalid_auth": "set TURNTAKE_SLACK_BOT_TOKEN to the app's Bot User OAuth Token",
    "not_authed": "set TURNTAKE_SLACK_BOT_TOKEN to the app's Bot User OAuth Token",
    "account_inactive": "install the app again, and set TURNTAKE_SLACK_BOT_TOKEN to its new token",
    "token_revoked": "install the app again, and set TURNTAKE_SLACK_BOT_TOKEN to its new token",
    "missing_scope": "add the scope chat:write, and install the app again",
}
PAUSE_MS = 1_000
"""How long to wait where Slack throttles without saying: it takes about one message per second in each channel."""

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class SlackReplies(ReplyApi):
    """Slack has no idempotency key: a reply whose fate is unknown may arrive twice. Its metadata says which it is."""

    # Slack takes 4,000, counted with the escapes: this leaves a third of the room to them. Should a text have more,
    # Slack itself sends it in two messages, and loses nothing below 40,000.
    longest = 3_000
    # A status is shown for two minutes, so this renews it in time.
    typing_ms = 60_000

    def reply_call(self, to: Recipient, text: str, reply_id: str) -> ApiCall:
        body = {
            "channel": to.key.conversation,
            "text": text.translate(_ESCAPES),
            "metadata": {"event_type": "turntake_reply", "event_payload": {"reply_id": reply_id}},
        }
        return self._call("chat.postMessage", body | ({"thread_ts": to.thread} if to.thread else {}))

    def check(self, response: ApiResponse) -> str:
        """Nearly every response has the status 200; what happened is in its body."""
        payload, asked = object_in(response.body) or {}, response.headers.get("retry-after")
        if response.status == 200 and payload.get("ok") is True:
            return text_at(payload, "ts")
        error = text_at(payload, "error")
        if response.status == 429 or error in THROTTLED:
            raise retry_later(f"Slack throttles us ({error or response.status}).", asked, PAUSE_MS)
        if response.status >= 500 or error in PASSING or (response.status < 300 and not error):
            raise SendFailed(f"Slack failed ({error or response.status}).")
        raise GiveUp(f"Slack refuses the reply: {_in_full(error, payload) or response.status}.")

    def typing_call(self, to: Recipient) -> ApiCall | None:
        return self._status(to, "is typing…")

    def typing_stopped_call(self, to: Recipient) -> ApiCall | None:
        return self._status(to, "")

    def _status(self, to: Recipient, status: str) -> ApiCall | None:
        """Slack shows one in threads alone."""
        if not to.thread:
            return None
        body = {"channel_id": to.key.conversation, "thread_ts": to.thread, "status": status}
        return self._call("assistant.threads.setStatus", body)

    def _call(self, method: str, body: dict[str, Any]) -> ApiCall:
        headers = {"content-type": "application/json; charset=utf-8", **bearer(self._values["bot_token"])}
        return ApiCall(f"{self._values['api_base'].rstrip('/')}/{method}", msgspec.json.encode(body), headers)


def _in_full(error: str, payload: dict[str, Any]) -> str:
    """Slack's word, what it needs if it says so, and what to do about it."""
    needed = text_at(payload, "needed")
    detail = f" (needs {needed})" if needed else ""
    return f"{error}{detail}; {HINTS[error]}" if error in HINTS else f"{error}{detail}"
