"""Telegram's Bot API: one update per webhook. Pure.

The secret token is a password and not a signature: it speaks for who sends, and not for what is in the body.
What an update may be is in https://core.telegram.org/bots/api#update; what a message says, in `content.py`.
"""

import hmac
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from turntake.errors import Forged
from turntake.platforms.channel import Channel, ChatEvent, Delivery, Needs, Option, Request, keys_in
from turntake.platforms.check import WebhookCheck, WhoAmI
from turntake.platforms.loose_json import object_at, objects_at, read_object, text_at, texts_at, time_at
from turntake.platforms.telegram import check
from turntake.platforms.telegram.content import (
    Post,
    attachments_of,
    conversation_of,
    is_by_owner,
    is_group,
    label_of,
    metadata_of,
    reply_to_of,
    sender_of,
    text_of,
    topic_of,
)
from turntake.platforms.telegram.replies import TelegramReplies
from turntake.platforms.text_limit import TextLimit

TOKEN_HEADER = "x-telegram-bot-api-secret-token"
NEW = frozenset({"message", "business_message"})
EDITED = frozenset({"edited_message", "edited_business_message"})
READ = frozenset({"postback", "edit", "delete", "typing", "stopped"})
"""The kinds of event that mean something here, so that no update of later days may have their names."""

_BOT_TOKEN = re.compile(r"([0-9]{1,19}):.+")


class Telegram(Channel):
    """One bot. Its id, which is the first part of its token, is the account."""

    title = "Telegram"
    text_limit = TextLimit(4096, "utf-16")  # apps send a longer one as several messages
    signed_by = frozenset({TOKEN_HEADER})
    takes_get = False
    options = (
        Option(
            "secret_token", "The secret_token given to setWebhook: checks every webhook.", use="verify", is_chosen=True
        ),
        Option("bot_token", "The bot's token, from @BotFather.", use="reply"),
        Option("api_base", "Where the Bot API begins.", is_secret=False, default="https://api.telegram.org"),
        Option("typing_api_id", "To see people type: the api_id from my.telegram.org.", use="listen", is_secret=False),
        Option("typing_api_hash", "The api_hash that belongs to typing_api_id.", use="listen"),
        Option("typing_session", "A logged-in user's Telethon session: its text, or its file's path.", use="listen"),
        Option(
            "typing_business_connection",
            "The business_connection_id under which the bot answers for that user, if it does.",
            is_secret=False,
        ),
    )
    needs = Needs(https=True, ports=(443, 80, 88, 8443))
    replies = TelegramReplies
    listener = "turntake.platforms.telegram.typing:TelegramTyping"

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self._bot = bot_in(self._values["bot_token"])

    def verify(self, request: Request, now: int) -> None:
        keys = keys_in(self._values["secret_token"])
        if not keys:
            raise Forged("No secret token is set, so nobody can be believed: set TURNTAKE_TELEGRAM_SECRET_TOKEN.")
        token = request.headers.get(TOKEN_HEADER, "").encode("utf-8", "replace")
        if not any(hmac.compare_digest(token, key) for key in keys):
            raise Forged(
                "X-Telegram-Bot-Api-Secret-Token is missing or wrong: "
                "call setWebhook with the secret_token that TURNTAKE_TELEGRAM_SECRET_TOKEN is set to."
            )

    def read(self, request: Request) -> Delivery:
        """The answer is empty: what Telegram finds in it, it may carry out as a call of ours."""
        return Delivery(tuple(self._events(read_object(request.body, "Telegram"))))

    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        person = {"id": _number(sender), "is_bot": False, "first_name": "Sample"}
        chat = {"id": _number(sender), "type": "private", "first_name": "Sample"}
        message = {"message_id": _number(id), "from": person, "chat": chat, "date": now // 1000, "text": text}
        body = msgspec.json.encode({"update_id": now // 1000, "message": message})
        key = [*keys_in(self._values["secret_token"]), b""][0]
        return Request("POST", url, {"content-type": "application/json", TOKEN_HEADER: key.decode()}, body)

    def whoami(self) -> WhoAmI:
        return check.whoami(self._values)

    def webhook_check(self, url: str, is_public: bool) -> WebhookCheck:
        return check.webhook_check(self._values, url, is_public)

    def _events(self, update: dict[str, Any]) -> Iterator[ChatEvent]:
        kind = next((name for name in update if name != "update_id"), "empty")
        payload, update_id = object_at(update, kind), text_at(update, "update_id")
        if kind in NEW | EDITED:
            yield self._message(kind, payload)
        elif kind == "callback_query":
            yield self._pressed(payload)
        elif kind == "deleted_business_messages":
            yield from self._deleted(payload)
        elif kind == "message_reaction":
            yield self._reaction(payload, update_id)
        else:
            yield ChatEvent(kind="unsupported" if kind in READ else kind, account=self._bot, id=update_id)

    def _message(self, update_kind: str, post: Post) -> ChatEvent:
        id = text_at(post, "message_id")
        event = ChatEvent(
            kind="edit" if update_kind in EDITED else "message",
            account=self._bot,
            conversation=conversation_of(post),
            sender=sender_of(post),
            id=id,
            text=text_of(post),
            attachments=attachments_of(post),
            sent_at=time_at(post, "date"),
            reply_to=reply_to_of(post),
            thread=topic_of(post),
            is_group=is_group(post),
            target=id if update_kind in EDITED else "",
            metadata=metadata_of(post),
        )
        other = self._other_kind(update_kind, post, event)
        return replace(event, kind=other) if other else event

    def _other_kind(self, update_kind: str, post: Post, event: ChatEvent) -> str:
        """What a message is unless it is one that a person says to the bot; then ""."""
        if not event.conversation or not event.id:
            return "unsupported"
        if self._is_by_bot(post):
            return "bot_message"
        if is_by_owner(post):
            return "echo"
        # Somebody joined, a title changed, or it is newer than we are.
        return "" if event.text or event.attachments else "system"

    def _is_by_bot(self, post: Post) -> bool:
        if "sender_business_bot" in post or post.get("is_automatic_forward") is True:
            return True
        if "sender_chat" in post:
            return False  # a person who speaks as a chat; Telegram puts a bot of its own in `from`
        author = object_at(post, "from")
        return author.get("is_bot") is True or text_at(author, "id") == (self._bot or None)

    def _pressed(self, query: dict[str, Any]) -> ChatEvent:
        """A button under a message of ours. Where there is no chat, there is nobody to answer."""
        post = object_at(query, "message")
        data, conversation = text_at(query, "data"), conversation_of(post)
        return ChatEvent(
            kind="postback" if data and conversation else "callback_query",
            account=self._bot,
            conversation=conversation,
            sender=text_at(query, "from", "id"),
            id=text_at(query, "id"),
            text=label_of(post, data) or data,
            thread=topic_of(post),
            is_group=is_group(post),
            metadata={"payload": data, "pressedMessage": text_at(post, "message_id")},
        )

    def _deleted(self, deletion: Post) -> Iterator[ChatEvent]:
        conversation = conversation_of(deletion)
        for id in texts_at(deletion, "message_ids"):
            yield ChatEvent(kind="delete", account=self._bot, conversation=conversation, target=id)

    def _reaction(self, reaction: Post, update_id: str) -> ChatEvent:
        """The reactions that a person now shows to a message; none, if they were taken back."""
        return ChatEvent(
            kind="reaction",
            account=self._bot,
            conversation=conversation_of(reaction),
            sender=text_at(reaction.get("user") or reaction.get("actor_chat"), "id"),
            id=update_id,
            sent_at=time_at(reaction, "date"),
            is_group=is_group(reaction),
            target=text_at(reaction, "message_id"),
            metadata={
                "emoji": [text_at(e, "emoji") or text_at(e, "type") for e in objects_at(reaction, "new_reaction")]
            },
        )


def bot_in(token: str) -> str:
    """The bot's own id, which its token begins with; "" if this is not a token."""
    match = _BOT_TOKEN.fullmatch(token.strip())
    return match[1] if match else ""


def _number(id: str) -> int | str:
    """As Telegram writes ids, which are numbers; other ids stay what they are."""
    return int(id) if re.fullmatch(r"-?[1-9][0-9]{0,17}", id) else id
