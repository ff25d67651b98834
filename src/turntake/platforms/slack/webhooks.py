"""Slack: the Events API, pressed buttons and slash commands. Pure.

A post in a channel, a direct chat or a thread is a message; its id is its `ts`, so that the `app_mention` and the
`message` event of one post are one message. A thread is a conversation of its own.
"""

import hashlib
import hmac
import re
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import replace

from turntake.errors import ConfigurationError, Forged
from turntake.platforms.channel import Channel, ChatEvent, Delivery, Option, Request, WebhookAnswer, keys_in
from turntake.platforms.check import WhoAmI
from turntake.platforms.loose_json import object_at, objects_at, read_object, text_at, time_at
from turntake.platforms.slack import check
from turntake.platforms.slack.content import attachments_of, ignored, is_group, thread_of, words_of
from turntake.platforms.slack.forms import form_events
from turntake.platforms.slack.replies import SlackReplies
from turntake.platforms.text_limit import TextLimit

TOLERANCE_MS = 300_000
"""Five minutes, as Slack advises."""
SAYING = frozenset({"", "file_share", "me_message", "thread_broadcast"})
"""The subtypes of a message that a person wrote."""
_SECONDS = re.compile(r"[0-9]{1,12}")


class Slack(Channel):
    """One Slack app. The account of an event is the workspace that it happened in."""

    title = "Slack"
    text_limit = TextLimit(4000)
    signed_by = frozenset({"x-slack-signature"})
    takes_get = False
    replies = SlackReplies
    options = (
        Option("signing_secret", "Checks that webhooks are Slack's: Basic Information, App Credentials.", use="verify"),
        Option("bot_token", "Sends replies: the Bot User OAuth Token, xoxb-…", use="reply"),
        Option("bot_user_id", "The bot's own user id, U…, whose own messages are ignored.", is_secret=False),
        Option("api_base", "Where Slack's API is.", is_secret=False, default="https://slack.com/api"),
    )

    def verify(self, request: Request, now: int) -> None:
        keys = keys_in(self._values["signing_secret"])
        if not keys:
            raise Forged("No signing secret is set, so nobody can be believed: set TURNTAKE_SLACK_SIGNING_SECRET.")
        seconds = request.headers.get("x-slack-request-timestamp", "")
        if not _SECONDS.fullmatch(seconds):
            raise Forged("X-Slack-Request-Timestamp is missing, or not in whole seconds.")
        if abs(now - int(seconds) * 1000) > TOLERANCE_MS:
            raise Forged("X-Slack-Request-Timestamp is more than five minutes from now: check this machine's clock.")
        header = request.headers.get("x-slack-signature", "").encode("latin-1", "replace")
        if not any(hmac.compare_digest(header, _signature(key, seconds, request.body)) for key in keys):
            raise Forged("X-Slack-Signature is not that of this body: check TURNTAKE_SLACK_SIGNING_SECRET.")

    def read(self, request: Request) -> Delivery:
        """The answer is the challenge where Slack asks whether this URL is ours, and else nothing."""
        if _is_form(request):
            return Delivery(tuple(form_events(_form(request.body))))
        payload = read_object(request.body, "Slack")
        kind = text_at(payload, "type")
        if kind == "url_verification":
            return Delivery(answer=WebhookAnswer(text_at(payload, "challenge").encode()))
        if kind == "event_callback":
            return Delivery((self._event(payload),))
        return Delivery((ChatEvent(kind=ignored(kind), account=_team(payload)),))

    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        """A direct message. Its channel is the sender, since Slack takes a user's id for the chat with that user."""
        keys = keys_in(self._values["signing_secret"])
        if not keys:
            raise ConfigurationError("Nothing can be signed without a secret: set TURNTAKE_SLACK_SIGNING_SECRET.")
        sent = f"{now // 1000}.{now % 1000:03d}000"
        event = {"type": "message", "channel": sender, "channel_type": "im", "user": sender, "text": text}
        event |= {"ts": id, "event_ts": sent}
        envelope = {"type": "event_callback", "team_id": "T0SAMPLE", "api_app_id": "A0SAMPLE", "event": event}
        body = msgspec.json.encode(envelope | {"event_id": f"Ev{id}", "event_time": now // 1000})
        seconds = str(now // 1000)
        signed = {
            "x-slack-request-timestamp": seconds,
            "x-slack-signature": _signature(keys[0], seconds, body).decode(),
        }
        return Request("POST", url, {"content-type": "application/json", **signed}, body)

    def whoami(self) -> WhoAmI:
        return check.whoami(self._values)

    def _event(self, envelope: dict[str, Any]) -> ChatEvent:
        """The one event in an envelope."""
        event = object_at(envelope, "event")
        kind = text_at(event, "type")
        if kind in ("reaction_added", "reaction_removed"):
            return _reaction(envelope, event)
        if kind not in ("message", "app_mention"):
            return _about(envelope, event, ignored(kind))
        subtype = text_at(event, "subtype")
        if subtype == "message_changed":
            return self._changed(envelope, event)
        if subtype == "message_deleted":
            return self._deleted(envelope, event, text_at(event, "deleted_ts"))
        return self._posted(envelope, event)

    def _posted(self, envelope: dict[str, Any], post: dict[str, Any]) -> ChatEvent:
        about = _about(envelope, post, self._authorship(envelope, post) or "message")
        if about.kind != "message":
            return about
        if not about.conversation:
            return replace(about, kind="unsupported")
        return replace(about, text=words_of(post), attachments=attachments_of(post))

    def _changed(self, envelope: dict[str, Any], event: dict[str, Any]) -> ChatEvent:
        """An edit only if a person changed the words: unfurled links and titles come the same way."""
        post, before = object_at(event, "message"), object_at(event, "previous_message")
        if post.get("subtype") == "tombstone":
            # A deleted post that others replied to stays as a placeholder, which Slack calls a tombstone.
            return self._deleted(envelope, event, text_at(post, "ts"))
        author = self._authorship(envelope, post)
        is_edit = bool(post.get("edited")) and not (before and words_of(before) == words_of(post))
        if author or not is_edit:
            return _about(envelope, event, author or "message_changed")
        return replace(
            _about(envelope, event, "edit"),
            sender=text_at(post, "user"),
            target=text_at(post, "ts") or text_at(before, "ts"),
            thread=thread_of(post) or thread_of(before),
            text=words_of(post),
            attachments=attachments_of(post),
        )

    def _deleted(self, envelope: dict[str, Any], event: dict[str, Any], target: str) -> ChatEvent:
        before = object_at(event, "previous_message")
        kind = self._authorship(envelope, before) or ("delete" if target else "unsupported")
        about = _about(envelope, event, kind)
        return replace(about, target=target, sender=text_at(before, "user"), thread=thread_of(before))

    def _authorship(self, envelope: dict[str, Any], post: dict[str, Any]) -> str:
        """What a post is if no person wrote it: a bot's, an echo of our own, or Slack's own note; else ""."""
        subtype = text_at(post, "subtype")
        if text_at(post, "bot_id") or subtype == "bot_message":
            return "bot_message"
        app = text_at(post, "app_id")
        # Only Slack's own programs, which people write with, give a message a `client_msg_id`. An app's name beside it
        # says through which app's window the person wrote.
        is_by_app = app and app == envelope.get("api_app_id") and not post.get("client_msg_id")
        if text_at(post, "user") in self._own(envelope) or is_by_app:
            return "echo"
        return "" if subtype in SAYING else ignored(subtype)

    def _own(self, envelope: dict[str, Any]) -> set[str]:
        """Our bot's user ids. Authorizations of people are no reason to skip what they say."""
        bots = [each for each in objects_at(envelope, "authorizations") if each.get("is_bot") is True]
        configured = (part.strip() for part in self._values["bot_user_id"].split(","))
        return {*configured, *(text_at(bot, "user_id") for bot in bots)} - {""}


def _about(envelope: dict[str, Any], event: dict[str, Any], kind: str) -> ChatEvent:
    """What every event says of itself."""
    channel = text_at(event, "channel")
    return ChatEvent(
        kind=kind,
        account=_team(envelope),
        conversation=channel,
        sender=text_at(event, "user"),
        id=text_at(event, "ts") or text_at(envelope, "event_id"),
        sent_at=time_at(event, "ts") or time_at(event, "event_ts"),
        thread=thread_of(event),
        is_group=is_group(channel, text_at(event, "channel_type")),
    )


def _reaction(envelope: dict[str, Any], event: dict[str, Any]) -> ChatEvent:
    item = object_at(event, "item")
    return replace(
        _about(envelope, event, "reaction"),
        conversation=text_at(item, "channel"),
        id="",
        target=text_at(item, "ts"),
        metadata={"emoji": text_at(event, "reaction"), "is_removed": event.get("type") == "reaction_removed"},
    )


def _team(envelope: dict[str, Any]) -> str:
    return text_at(envelope, "team_id") or text_at(envelope, "enterprise_id")


def _signature(key: bytes, seconds: str, body: bytes) -> bytes:
    signed = hmac.digest(key, b"v0:%s:%s" % (seconds.encode(), body), hashlib.sha256)
    return b"v0=" + signed.hex().encode()


def _is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").lower().startswith("application/x-www-form-urlencoded")


def _form(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
