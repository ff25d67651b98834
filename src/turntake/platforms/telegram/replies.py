"""Replies through Telegram's Bot API. Pure.

The bot's token is part of every URL: none may get into an error or a log.
"""

import re
from typing import Any
from urllib.parse import quote

import msgspec

from turntake.errors import GiveUp, RetryLater, SendFailed
from turntake.platforms.loose_json import object_in
from turntake.platforms.replies import ApiCall, ApiResponse, Recipient, ReplyApi, Unit

PAUSE_S = 5
LONGEST_PAUSE_S = 3_600
EXCERPT = 300
PASSING = {408, 409, 425}
ADVICE = {
    401: "check TURNTAKE_TELEGRAM_BOT_TOKEN",
    403: "the person blocked the bot, or removed it from the chat",
    404: "check TURNTAKE_TELEGRAM_BOT_TOKEN",
}


class TelegramReplies(ReplyApi):
    """Plain text: half a Markdown mark in a model's answer would have the whole of it refused."""

    longest = 4096
    unit: Unit = "utf-16"
    typing_ms = 4_000

    def reply_call(self, to: Recipient, text: str, reply_id: str) -> ApiCall:
        return self._call("sendMessage", _chat(to) | {"text": text} | _quote(to.reply_to))

    def check(self, response: ApiResponse) -> str:
        match object_in(response.body) or {}:
            case {"ok": True, "result": {"message_id": int(id)}} if 200 <= response.status < 300:
                return str(id)
            case said:
                raise _error(response.status, said)

    def typing_call(self, to: Recipient) -> ApiCall | None:
        return self._call("sendChatAction", _chat(to) | {"action": "typing"})

    def _call(self, method: str, arguments: dict[str, Any]) -> ApiCall:
        token = quote(self._values["bot_token"].strip(), safe=":")
        return ApiCall(f"{self._values['api_base'].rstrip('/')}/bot{token}/{method}", msgspec.json.encode(arguments))


def _quote(message_id: str) -> dict[str, Any]:
    """A message that is gone by now is not quoted, and the reply is sent all the same."""
    if not re.fullmatch(r"[0-9]{1,10}", message_id):
        return {}
    return {"reply_parameters": {"message_id": int(message_id), "allow_sending_without_reply": True}}


def _chat(to: Recipient) -> dict[str, Any]:
    """Where the messages came from: the chat, its topic, and the business account that we speak for."""
    connection, _, chat = to.key.conversation.rpartition("/")
    where: dict[str, Any] = {"chat_id": _number(chat)}
    if connection:
        where["business_connection_id"] = connection
    if to.thread:
        where["message_thread_id"] = _number(to.thread)
    return where


def _number(id: str) -> int | str:
    return int(id) if re.fullmatch(r"-?[0-9]{1,19}", id) else id


def _error(status: int, said: dict[str, Any]) -> Exception:
    """By Telegram's own number, which is the status too, except behind a proxy."""
    number, words = said.get("error_code"), str(said.get("description") or "")[:EXCERPT]
    code = number if isinstance(number, int) else status
    what = f"Telegram answered {code}: {words}" if words else f"Telegram answered {code}."
    parameters = said.get("parameters")
    hints = parameters if isinstance(parameters, dict) else {}
    if code == 429:
        return RetryLater(_pause_s(hints.get("retry_after")), what)
    if not 400 <= code < 500 or code in PASSING:
        return SendFailed(what)
    advice = f"it goes on as chat {moved}" if (moved := hints.get("migrate_to_chat_id")) else ADVICE.get(code)
    return GiveUp(f"{what} ({advice})" if advice else what)


def _pause_s(asked: object) -> int:
    return min(max(asked, 1), LONGEST_PAUSE_S) if isinstance(asked, int) else PAUSE_S
