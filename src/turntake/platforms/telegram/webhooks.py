"""Telegram's Bot API: one update a webhook. Pure.

The secret token is a password, no signature: it speaks for who sends, and not for what is in the body.
What an update may be is in https://core.telegram.org/bots/api#update; what a message says, in `telegram_message.py`.
"""

import hmac
import re
from collections.abc import Iterator, Mapping

import msgspec

from turntake.errors import Forged, Unreadable
from turntake.platforms.channel import Channel, ChatEvent, Option, Request, WebhookAnswer, keys_in
from turntake.platforms.loose_json import object_in
from turntake.platforms.telegram.content import (
    Thing,
    attachments_of,
    conversation_of,
    id_of,
    instant,
    is_by_owner,
    is_group,
    label_of,
    metadata_of,
    reply_to_of,
    sender_of,
    text_of,
    thing,
    things,
    topic_of,
    words,
)

TOKEN_HEADER = "x-telegram-bot-api-secret-token"
NEW = frozenset({"message", "business_message"})
EDITED = frozenset({"edited_message", "edited_business_message"})
READ = frozenset({"postback", "edit", "delete", "typing", "stopped"})
"""The kinds of event that mean something here, so that no update of later days may have their names."""

TYPING = (
    Option("typing_api_id", "To see people type: the api_id from my.telegram.org.", use="listen", is_secret=False),
    Option("typing_api_hash", "The api_hash that belongs to typing_api_id.", use="listen"),
    Option("typing_session", "A logged-in user's Telethon session: its text, or its file's path.", use="listen"),
    Option(
        "typing_business_connection",
        "The business_connection_id under which the bot answers for that user, if it does.",
        is_secret=False,
    ),
)
"""What `telegram_typing.py` needs; named here, since its library is loaded only if it is used."""

_BOT_TOKEN = re.compile(r"([0-9]{1,19}):.+")


class Telegram(Channel):
    """One bot. Its id, which is the first part of its token, is the account."""

    options = (
        Option("secret_token", "The secret_token given to setWebhook: checks every webhook.", use="verify"),
        Option("bot_token", "The bot's token, from @BotFather.", use="reply"),
        Option("api_base", "Where the Bot API begins.", is_secret=False, default="https://api.telegram.org"),
        *TYPING,
    )

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given)
        self._bot = bot_in(self._values["bot_token"])

    def verify(self, request: Request, now: int) -> None:
        keys = keys_in(self._values["secret_token"])
        if not keys:
            raise Forged("No secret token is set, so nobody can be believed: set TURNTAKE_TELEGRAM_SECRET_TOKEN.")
        given = request.headers.get(TOKEN_HEADER, "").encode("utf-8", "replace")
        if not any(hmac.compare_digest(given, key) for key in keys):
            raise Forged(
                "X-Telegram-Bot-Api-Secret-Token is missing or wrong: "
                "call setWebhook with the secret_token that TURNTAKE_TELEGRAM_SECRET_TOKEN is set to."
            )

    def events_in(self, request: Request) -> list[ChatEvent]:
        update = object_in(request.body)
        if update is None:
            raise Unreadable("The body is no JSON object in UTF-8; Telegram sends one update as such.")
        return list(self._events(update))

    def answer(self, request: Request) -> WebhookAnswer:
        """Nothing: what Telegram finds in a body, it may carry out as a call of ours."""
        return WebhookAnswer()

    def sample(self, text: str, *, sender: str, id: str, url: str, now: int) -> Request:
        person = {"id": _written(sender), "is_bot": False, "first_name": "Sample"}
        chat = {"id": _written(sender), "type": "private", "first_name": "Sample"}
        message = {"message_id": _written(id), "from": person, "chat": chat, "date": now // 1000, "text": text}
        body = msgspec.json.encode({"update_id": now // 1000, "message": message})
        key = [*keys_in(self._values["secret_token"]), b""][0]
        return Request("POST", url, {"content-type": "application/json", TOKEN_HEADER: key.decode()}, body)

    def _events(self, update: Thing) -> Iterator[ChatEvent]:
        kind = next((name for name in update if name != "update_id"), "empty")
        said, update_id = thing(update.get(kind)), id_of(update.get("update_id"))
        if kind in NEW | EDITED:
            yield self._message(kind, said)
        elif kind == "callback_query":
            yield self._pressed(said)
        elif kind == "deleted_business_messages":
            yield from self._deleted(said)
        elif kind == "message_reaction":
            yield self._reaction(said, update_id)
        else:
            yield ChatEvent(kind="unsupported" if kind in READ else kind, account=self._bot, id=update_id)

    def _message(self, update_kind: str, said: Thing) -> ChatEvent:
        id = id_of(said.get("message_id"))
        return ChatEvent(
            kind=self._kind(update_kind, said),
            account=self._bot,
            conversation=conversation_of(said),
            sender=sender_of(said),
            id=id,
            text=text_of(said),
            attachments=attachments_of(said),
            sent_at=instant(said.get("date")),
            reply_to=reply_to_of(said),
            thread=topic_of(said),
            is_group=is_group(said),
            target=id if update_kind in EDITED else "",
            metadata=metadata_of(said),
        )

    def _kind(self, update_kind: str, said: Thing) -> str:
        """What a message is to us: only what a person says to the bot counts."""
        if not conversation_of(said) or not id_of(said.get("message_id")):
            return "unsupported"
        if self._is_by_bot(said):
            return "bot_message"
        if update_kind.endswith("business_message") and is_by_owner(said):
            return "echo"
        if not text_of(said) and not attachments_of(said):
            return "system"  # somebody joined, a title changed, or it is newer than we are
        return "edit" if update_kind in EDITED else "message"

    def _is_by_bot(self, said: Thing) -> bool:
        if "sender_business_bot" in said or said.get("is_automatic_forward") is True:
            return True
        if "sender_chat" in said:
            return False  # a person who speaks as a chat; Telegram puts a bot of its own in `from`
        author = thing(said.get("from"))
        return author.get("is_bot") is True or id_of(author.get("id")) == (self._bot or None)

    def _pressed(self, said: Thing) -> ChatEvent:
        """A button under a message of ours. Where there is no chat, there is nobody to answer."""
        message = thing(said.get("message"))
        data, conversation = words(said.get("data")), conversation_of(message)
        return ChatEvent(
            kind="postback" if data and conversation else "callback_query",
            account=self._bot,
            conversation=conversation,
            sender=id_of(thing(said.get("from")).get("id")),
            id=id_of(said.get("id")),
            text=label_of(message, data) or data,
            thread=topic_of(message),
            is_group=is_group(message),
            metadata={"payload": data, "pressedMessage": id_of(message.get("message_id"))},
        )

    def _deleted(self, said: Thing) -> Iterator[ChatEvent]:
        conversation = conversation_of(said)
        for id in filter(None, map(id_of, things(said.get("message_ids")))):
            yield ChatEvent(kind="delete", account=self._bot, conversation=conversation, target=id)

    def _reaction(self, said: Thing, update_id: str) -> ChatEvent:
        """The reactions that a person now shows to a message; none, if they were taken back."""
        shown = [thing(reaction) for reaction in things(said.get("new_reaction"))]
        return ChatEvent(
            kind="reaction",
            account=self._bot,
            conversation=conversation_of(said),
            sender=id_of(thing(said.get("user") or said.get("actor_chat")).get("id")),
            id=update_id,
            sent_at=instant(said.get("date")),
            is_group=is_group(said),
            target=id_of(said.get("message_id")),
            metadata={"emoji": [words(reaction.get("emoji") or reaction.get("type")) for reaction in shown]},
        )


def bot_in(token: str) -> str:
    """The bot's own id, which its token begins with; "" if this is no token."""
    match = _BOT_TOKEN.fullmatch(token.strip())
    return match[1] if match else ""


def _written(id: str) -> int | str:
    """As Telegram writes ids, which are numbers; other ids stay what they are."""
    return int(id) if re.fullmatch(r"-?[1-9][0-9]{0,17}", id) else id
