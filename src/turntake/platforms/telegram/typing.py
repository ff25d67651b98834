"""Telegram tells user accounts, and no bots, that somebody is typing: an opt-in listener with such an account.

It hears people in the groups that it shares with the bot, and in its own chats if the bot is connected to it as to
a business account. `events_of` is pure; around it is as little as possible.
"""

import struct
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Any

from telethon import TelegramClient, errors, events, types
from telethon.sessions import StringSession

from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.platforms.channel import ChatEvent
from turntake.platforms.listener import Listener, OnEvents
from turntake.platforms.telegram.webhooks import TYPING, bot_in

# Clients repeat a sign every five seconds, and Telegram's own forget it after six.
TTL_MS = 6_000
FOR_EVER = -1
HEARD = (types.UpdateUserTyping, types.UpdateChatUserTyping, types.UpdateChannelUserTyping)
CANCEL = "sendMessageCancelAction"
COMPOSING = {
    "sendMessageTypingAction": "typing",
    "sendMessageRecordAudioAction": "recording_voice",
    "sendMessageRecordRoundAction": "recording_video_note",
    "sendMessageRecordVideoAction": "recording_video",
    "sendMessageUploadAudioAction": "uploading",
    "sendMessageUploadDocumentAction": "uploading",
    "sendMessageUploadPhotoAction": "uploading",
    "sendMessageUploadRoundAction": "uploading",
    "sendMessageUploadVideoAction": "uploading",
    "sendMessageChooseContactAction": "choosing",
    "sendMessageChooseStickerAction": "choosing",
    "sendMessageGeoLocationAction": "choosing",
}
# A group's and a channel's number in the Bot API, as the webhooks have them.
FIRST_CHANNEL = 1_000_000_000_000

LOG_IN = "make a session as docs/channels/telegram.md says, and set TURNTAKE_TELEGRAM_TYPING_SESSION"


class TelegramTyping(Listener):
    """Best effort: a sign that is missed costs a few seconds of patience, and nothing else."""

    options = TYPING

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given)
        if not given["typing_api_id"].strip().isdecimal():
            raise ConfigurationError("TURNTAKE_TELEGRAM_TYPING_API_ID is a number; see my.telegram.org.")
        self._bot = bot_in(given.get("bot_token", ""))
        self._connection = given.get("typing_business_connection", "")

    async def listen(self, on_events: OnEvents) -> None:
        """As its port says, except that signs which the store did not take are dropped: the next is seconds away."""
        client = self.client()
        try:
            await client.connect()
            ours = {self._bot, await _own_id(client)}

            async def on_update(update: Any) -> None:
                with suppress(StoreUnavailable):
                    await on_events(events_of(update, account=self._bot, connection=self._connection, ours=ours))

            client.add_event_handler(on_update, events.Raw(HEARD))
            await client.run_until_disconnected()
        except (errors.UnauthorizedError, errors.AuthKeyError, errors.BadRequestError) as error:
            raise ConfigurationError(f"Telegram refuses the session ({type(error).__name__}): {LOG_IN}.") from None
        finally:
            await client.disconnect()

    def client(self) -> Any:
        """The connection, not yet made."""
        session = _session(self._values["typing_session"].strip())
        number, secret = int(self._values["typing_api_id"]), self._values["typing_api_hash"].strip()
        return TelegramClient(session, number, secret, sequential_updates=True, connection_retries=FOR_EVER)


def events_of(update: Any, *, account: str = "", connection: str = "", ours: Container[str] = ()) -> list[ChatEvent]:
    """What an update says of somebody's composing, if anything. `ours` are the ids that only we act under."""
    said = update if isinstance(update, Mapping) else update.to_dict()
    action, sender = _type(said.get("action")), _peer(said.get("from_id")) or str(said.get("user_id", ""))
    conversation = _conversation(said, connection)
    if not conversation or sender in ours or action not in (CANCEL, *COMPOSING):
        return []
    return [
        ChatEvent(
            kind="stopped" if action == CANCEL else "typing",
            account=account,
            conversation=conversation,
            sender=sender,
            thread=str(said.get("top_msg_id") or ""),
            is_group=_type(said) != "updateUserTyping",
            ttl_ms=0 if action == CANCEL else TTL_MS,
            metadata={"action": COMPOSING[action]} if action in COMPOSING else {},
        )
    ]


def _conversation(said: Mapping[str, Any], connection: str) -> str:
    """The chat as the bot's webhooks name it; "" for any other update."""
    match _type(said), said:
        case "updateUserTyping", {"user_id": int(id)}:
            return f"{connection}/{id}" if connection else str(id)
        case "updateChatUserTyping", {"chat_id": int(id)}:
            return str(-id)
        case "updateChannelUserTyping", {"channel_id": int(id)}:
            return str(-FIRST_CHANNEL - id)
    return ""


def _peer(peer: object) -> str:
    match peer:
        case {"user_id": int(id)}:
            return str(id)
        case {"chat_id": int(id)}:
            return str(-id)
        case {"channel_id": int(id)}:
            return str(-FIRST_CHANNEL - id)
    return ""


def _type(said: object) -> str:
    """Its type in the schema's spelling; Telethon begins it with a capital letter."""
    name = str(said.get("_", "")) if isinstance(said, Mapping) else ""
    return name[:1].lower() + name[1:]


def _session(given: str) -> StringSession | str:
    """The session itself, if that is what was given, else its file."""
    try:
        return StringSession(given)
    except (ValueError, struct.error):
        return given


async def _own_id(client: Any) -> str:
    me = await client.get_me()
    if me is None:
        raise ConfigurationError(f"The Telegram session is not logged in: {LOG_IN}.")
    if me.bot:
        raise ConfigurationError(f"A bot is never told who is typing; log in as a user: {LOG_IN}.")
    return str(me.id)
