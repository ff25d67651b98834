"""Replies through Telegram's Bot API. Pure.

The bot's token is part of every URL: none may get into an error or a log.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from turntake.errors import GiveUp, SendFailed
from turntake.platforms import address
from turntake.platforms.loose_json import at, integer_at, object_in, text_at
from turntake.platforms.replies import ApiCall, ApiResponse, Recipient, ReplyApi, Unit, retry_later
from turntake.retry_after import excerpt

PAUSE_MS = 5_000
"""How long to wait where Telegram throttles without saying; as a rule it says."""
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
    # An indicator is shown for five seconds, so this renews it in time.
    typing_ms = 4_000

    def reply_call(self, to: Recipient, text: str, reply_id: str) -> ApiCall:
        return self._call("sendMessage", _chat(to) | {"text": text} | _quote(to.reply_to))

    def check(self, response: ApiResponse) -> str:
        payload = object_in(response.body) or {}
        id = text_at(payload, "result", "message_id")
        if not response.is_success or payload.get("ok") is not True or not id:
            raise _error(response.status, payload)
        return id

    def typing_call(self, to: Recipient) -> ApiCall | None:
        if address.read_direct_thread(to.thread):
            return None  # Telegram shows none in the direct messages of a channel
        return self._call("sendChatAction", _chat(to) | {"action": "typing"})

    def _call(self, method: str, arguments: dict[str, Any]) -> ApiCall:
        url = f"{self._values['api_base'].rstrip('/')}/{path_of(self._values, method)}"
        return ApiCall(url, msgspec.json.encode(arguments))


def path_of(values: Mapping[str, str], method: str) -> str:
    """The path of a method; it holds the token."""
    return f"bot{quote(values['bot_token'].strip(), safe=':')}/{method}"


def _quote(message_id: str) -> dict[str, Any]:
    """A message that is gone by now is not quoted, and the reply is sent all the same."""
    if not re.fullmatch(r"[0-9]{1,10}", message_id):
        return {}
    return {"reply_parameters": {"message_id": int(message_id), "allow_sending_without_reply": True}}


def _chat(to: Recipient) -> dict[str, Any]:
    """Where the messages came from: the chat, its topic, and the business account that we speak for."""
    connection, chat = address.read_chat(to.key.conversation)
    arguments: dict[str, Any] = {"chat_id": _number(chat)}
    if connection:
        arguments["business_connection_id"] = connection
    if direct := address.read_direct_thread(to.thread):
        arguments["direct_messages_topic_id"] = _number(direct)
    elif to.thread:
        arguments["message_thread_id"] = _number(to.thread)
    return arguments


def _number(id: str) -> int | str:
    return int(id) if re.fullmatch(r"-?[0-9]{1,19}", id) else id


def _error(status: int, payload: dict[str, Any]) -> Exception:
    """By Telegram's own number, which is the status too, except behind a proxy."""
    number, words = integer_at(payload, "error_code"), excerpt(text_at(payload, "description"))
    code = status if number is None else number
    text = f"Telegram answered {code}: {words}" if words else f"Telegram answered {code}."
    if code == 429:
        return retry_later(text, at(payload, "parameters", "retry_after"), PAUSE_MS)
    if not 400 <= code < 500 or code in PASSING:
        return SendFailed(text)
    moved = text_at(payload, "parameters", "migrate_to_chat_id")
    advice = f"it goes on as chat {moved}" if moved else ADVICE.get(code)
    return GiveUp(f"{text} ({advice})" if advice else text)
