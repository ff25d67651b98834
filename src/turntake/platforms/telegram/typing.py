"""Telegram tells user accounts, but not bots, that somebody is typing: an opt-in listener with such an account.

How this works: Telethon keeps a connection as a logged-in user, and Telegram reports on it who is typing in the groups
that this user shares with the bot, and in the user's own chats if the bot is connected to them as to a business
account. Each report becomes a typing event in the conversation that the bot's webhooks name, so the ids of chats, which
this protocol writes in another way than the Bot API, are translated. Messages come by webhooks; here they are ignored.
`events_of` is pure; around it is as little as possible.
"""

import struct
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Any

from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.platforms import address
from turntake.platforms.channel import ChatEvent
from turntake.platforms.listener import Listener, OnEvents
from turntake.platforms.telegram.webhooks import bot_in
from turntake.plugins import extra

with extra("telegram-typing"):
    from telethon import TelegramClient, errors, events, types
    from telethon.sessions import StringSession

TTL_MS = 6_000
"""Clients repeat a report every five seconds, and Telegram's own forget it after six."""
UNLIMITED = -1
TYPING_UPDATES = (types.UpdateUserTyping, types.UpdateChatUserTyping, types.UpdateChannelUserTyping)
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
FIRST_CHANNEL = 1_000_000_000_000
"""The Bot API writes channel 7 as -1000000000007, and group 7 as -7."""

LOG_IN = "make a session as `turntake channels telegram` says, and set TURNTAKE_TELEGRAM_TYPING_SESSION"


class TelegramTyping(Listener):
    """Best effort: a report that is missed costs a few seconds of patience, and nothing else."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        if not values["typing_api_id"].strip().isdecimal():
            raise ConfigurationError("TURNTAKE_TELEGRAM_TYPING_API_ID is a number; see my.telegram.org.")
        self._bot = bot_in(values.get("bot_token", ""))
        self._connection = values.get("typing_business_connection", "")

    async def listen(self, on_events: OnEvents) -> None:
        """As its port says, except that events which the store did not take are dropped: the next is seconds away."""
        client = self.client()
        try:
            await client.connect()
            own_ids = {self._bot, await _own_id(client)}

            async def on_update(update: Any) -> None:
                with suppress(StoreUnavailable):
                    await on_events(events_of(update, account=self._bot, connection=self._connection, own_ids=own_ids))

            client.add_event_handler(on_update, events.Raw(TYPING_UPDATES))
            await client.run_until_disconnected()
        except (errors.UnauthorizedError, errors.AuthKeyError, errors.BadRequestError) as error:
            raise ConfigurationError(f"Telegram refuses the session ({type(error).__name__}): {LOG_IN}.") from None
        finally:
            await client.disconnect()

    def client(self) -> Any:
        """The connection, not yet made."""
        session = _session(self._values["typing_session"].strip())
        number, secret = int(self._values["typing_api_id"]), self._values["typing_api_hash"].strip()
        return TelegramClient(session, number, secret, sequential_updates=True, connection_retries=UNLIMITED)


def events_of(update: Any, *, account: str = "", connection: str = "", own_ids: Container[str] = ()) -> list[ChatEvent]:
    """What an update says of somebody's composing, if anything. `own_ids` are those that only we act under."""
    payload = update if isinstance(update, Mapping) else update.to_dict()
    action = _type(payload.get("action"))
    sender = _peer(payload.get("from_id")) or str(payload.get("user_id", ""))
    conversation = _conversation(payload, connection)
    if not conversation or sender in own_ids or action not in (CANCEL, *COMPOSING):
        return []
    return [
        ChatEvent(
            kind="stopped" if action == CANCEL else "typing",
            account=account,
            conversation=conversation,
            sender=sender,
            thread=str(payload.get("top_msg_id") or ""),
            is_group=_type(payload) != "updateUserTyping",
            ttl_ms=0 if action == CANCEL else TTL_MS,
            metadata={"action": COMPOSING[action]} if action in COMPOSING else {},
        )
    ]


def _conversation(payload: Mapping[str, Any], connection: str) -> str:
    """The chat as the bot's webhooks name it; "" for any other update."""
    match _type(payload), payload:
        case "updateUserTyping", {"user_id": int(id)}:
            return address.write_chat(connection, str(id))
        case "updateChatUserTyping", {"chat_id": id}:
            return _peer({"chat_id": id})
        case "updateChannelUserTyping", {"channel_id": id}:
            return _peer({"channel_id": id})
    return ""


def _peer(peer: object) -> str:
    """A person, group or channel as the Bot API writes its id."""
    match peer:
        case {"user_id": int(id)}:
            return str(id)
        case {"chat_id": int(id)}:
            return str(-id)
        case {"channel_id": int(id)}:
            return str(-FIRST_CHANNEL - id)
    return ""


def _type(payload: object) -> str:
    """Its type in the schema's spelling; Telethon begins it with a capital letter."""
    name = str(payload.get("_", "")) if isinstance(payload, Mapping) else ""
    return name[:1].lower() + name[1:]


def _session(text: str) -> StringSession | str:
    """The session itself, if that is what is configured, else the path of its file."""
    try:
        return StringSession(text)
    except (ValueError, struct.error):
        return text


async def _own_id(client: Any) -> str:
    me = await client.get_me()
    if me is None:
        raise ConfigurationError(f"The Telegram session is not logged in: {LOG_IN}.")
    if me.bot:
        raise ConfigurationError(f"A bot is never told who is typing; log in as a user: {LOG_IN}.")
    return str(me.id)
