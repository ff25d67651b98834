"""Replies to Discord: into the channel, or to the interaction that asked. Pure."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from turntake.errors import GiveUp, SendFailed
from turntake.platforms import address
from turntake.platforms.address import Interaction
from turntake.platforms.discord.sealed_token import unseal
from turntake.platforms.loose_json import object_in, text_at
from turntake.platforms.replies import ApiCall, ApiResponse, Recipient, ReplyApi, path_id, retry_later
from turntake.retry_after import excerpt, retry_after_ms

PASSING = frozenset({408, 425})
DEFERRED = frozenset({2, 5})
"""The types of interaction, command and form, after which Discord shows "thinking…" until that is replaced."""
PAUSE_MS = 5_000
"""How long to wait where Discord throttles without saying: a channel takes about five messages in five seconds."""
USER_AGENT = "DiscordBot (turntake, 1)"
"""Discord turns programs away that do not name themselves as its bots do."""
DEEPEST = 4
"""How far down complaints about fields are read: an answer could be nested without end."""


class DiscordReplies(ReplyApi):
    """A repeated reply is known to Discord by its nonce for some minutes; only replies to interactions have none."""

    longest = 2_000
    # An indicator is shown for ten seconds, so this renews it in time.
    typing_ms = 8_000

    def reply_call(self, to: Recipient, text: str, reply_id: str) -> ApiCall:
        message: dict[str, Any] = {"content": text, "allowed_mentions": {"parse": []}}
        interaction = self._interaction(to)
        if interaction is None:
            message |= {"nonce": _nonce(reply_id), "enforce_nonce": True} | _quote(to.reply_to)
            return self._call("POST", _channel(to, "messages"), message)
        application = path_id(interaction.application_id, "The application's id")
        webhook = f"/webhooks/{application}/{_token(interaction.token)}"
        if interaction.kind in DEFERRED and reply_id.endswith("-0"):
            return self._call("PATCH", f"{webhook}/messages/@original", message)
        return self._call("POST", f"{webhook}?wait=true", message)

    def check(self, response: ApiResponse) -> str:
        payload = object_in(response.body) or {}
        if response.is_success:
            return text_at(payload, "id")
        if response.status == 429:
            asked_ms = retry_after_ms(response.headers.get("retry-after"), PAUSE_MS)
            raise retry_later("Discord throttles us (429).", payload.get("retry_after"), asked_ms)
        if response.status >= 500 or response.status in PASSING:
            raise SendFailed(f"Discord failed ({response.status}).")
        raise GiveUp(f"Discord refuses the reply ({response.status}): {_words(payload) or 'it gives no reason'}.")

    def typing_call(self, to: Recipient) -> ApiCall | None:
        """After a command Discord itself shows that an answer is coming."""
        interaction = self._interaction(to)
        if interaction is not None and interaction.kind in DEFERRED:
            return None
        return self._call("POST", _channel(to, "typing"), None)

    def _interaction(self, to: Recipient) -> Interaction | None:
        """The interaction that the last message came by, if it can be answered; its token is open here."""
        interaction = address.read_interaction(to.last.metadata) if to.last else None
        if interaction is None or not interaction.is_sealed:
            return interaction
        token = unseal(interaction.token, self._values["bot_token"])
        return interaction._replace(token=token, is_sealed=False) if token else None

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> ApiCall:
        # The token of an interaction, which is in its path, stands for the bot's.
        headers = {"user-agent": USER_AGENT} if path.startswith("/webhooks/") else bot_headers(self._values)
        encoded = b"" if body is None else msgspec.json.encode(body)
        url = f"{self._values['api_base'].rstrip('/')}{path}"
        return ApiCall(url, encoded, {"content-type": "application/json", **headers}, method)


def bot_headers(values: Mapping[str, str]) -> dict[str, str]:
    return {"user-agent": USER_AGENT, "authorization": f"Bot {values['bot_token']}"}


def _quote(message_id: str) -> dict[str, Any]:
    """A message that is gone by now is not quoted, and the reply is sent all the same."""
    if not message_id.isdecimal():
        return {}
    return {"message_reference": {"message_id": message_id, "fail_if_not_exists": False}}


def _channel(to: Recipient, action: str) -> str:
    channel = path_id(to.key.conversation, "The channel's id")
    return f"/channels/{channel}/{action}"


def _token(token: str) -> str:
    """As a part of a path. Discord does not say which characters it may have."""
    if token in (".", ".."):
        raise GiveUp("The token of the interaction is none, so it cannot be answered.")
    return quote(token, safe="")


def _nonce(reply_id: str) -> str:
    """24 characters, since Discord takes 25 at most."""
    return hashlib.blake2s(reply_id.encode(), digest_size=12).hexdigest()


def _words(payload: dict[str, Any]) -> str:
    """Discord's code and words, with those about a single field, such as that the text is too long."""
    parts = [text_at(payload, "message"), *_details(payload.get("errors"), DEEPEST)]
    code = text_at(payload, "code")
    return excerpt("; ".join(filter(None, parts))) + (f" [{code}]" if code and code != "0" else "")


def _details(errors: object, depth: int) -> Iterator[str]:
    if not isinstance(errors, dict) or not depth:
        return
    for name, inner in errors.items():
        if name == "_errors" and isinstance(inner, list):
            yield from (text_at(each, "message") for each in inner)
        else:
            yield from _details(inner, depth - 1)
