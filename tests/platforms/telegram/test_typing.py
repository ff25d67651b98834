"""What a Telegram user account hears of people who are composing."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from telethon import errors, types
from telethon.crypto import AuthKey
from telethon.sessions import StringSession

from turntake.accept.intake import key_of
from turntake.errors import ConfigurationError, StoreUnavailable
from turntake.platforms.channel import ChatEvent, Request
from turntake.platforms.telegram.typing import TelegramTyping, events_of
from turntake.platforms.telegram.webhooks import Telegram

GIVEN = {
    "bot_token": "700700:x",
    "typing_api_id": "17",
    "typing_api_hash": "0123456789abcdef",
    "typing_session": "somewhere",
    "typing_business_connection": "",
}
TYPING = {"_": "sendMessageTypingAction"}


def user_typing(action: str = "sendMessageTypingAction", **more: Any) -> dict[str, Any]:
    return {"_": "updateUserTyping", "user_id": 4711, "action": {"_": action}, **more}


@pytest.mark.parametrize(
    ("action", "what"),
    [
        ("sendMessageTypingAction", "typing"),
        ("sendMessageRecordAudioAction", "recording_voice"),
        ("sendMessageRecordRoundAction", "recording_video_note"),
        ("sendMessageUploadPhotoAction", "uploading"),
        ("sendMessageChooseStickerAction", "choosing"),
    ],
)
def test_somebody_who_composes_is_given_six_seconds(action: str, what: str) -> None:
    (event,) = events_of(user_typing(action))
    assert (event.kind, event.conversation, event.sender, event.ttl_ms) == ("typing", "4711", "4711", 6_000)
    assert event.metadata == {"action": what}


def test_somebody_who_stopped_is_waited_for_no_longer() -> None:
    (event,) = events_of(user_typing("sendMessageCancelAction"))
    assert (event.kind, event.conversation, event.ttl_ms) == ("stopped", "4711", 0)


@pytest.mark.parametrize(
    "update",
    [
        user_typing("sendMessageGamePlayAction"),
        user_typing("sendMessageHistoryImportAction"),
        user_typing("speakingInGroupCallAction"),
        user_typing("sendMessageSomethingNewAction"),
        {"_": "updateUserStatus", "user_id": 4711, "status": {"_": "userStatusOnline"}},
        {"_": "updateUserTyping", "action": TYPING},
        {"_": "updateUserTyping", "user_id": 4711, "action": None},
        {},
    ],
)
def test_other_updates_are_ignored(update: dict[str, Any]) -> None:
    assert events_of(update) == []


PERSON = types.PeerUser(4711)
COMPOSES = types.SendMessageTypingAction()
OBJECTS = [
    (types.UpdateUserTyping(4711, COMPOSES), {"id": 4711, "type": "private"}, {}),
    (types.UpdateChatUserTyping(55, PERSON, COMPOSES), {"id": -55, "type": "group"}, {}),
    (types.UpdateChannelUserTyping(2345678901, PERSON, COMPOSES), {"id": -1002345678901, "type": "supergroup"}, {}),
    (
        types.UpdateChannelUserTyping(2345678901, PERSON, COMPOSES, 5),
        {"id": -1002345678901, "type": "supergroup"},
        {"message_thread_id": 5, "is_topic_message": True},
    ),
]


@pytest.mark.parametrize(("update", "chat", "topic"), OBJECTS)
def test_telethons_updates_mean_the_conversation_that_the_webhook_means(
    update: Any, chat: dict[str, Any], topic: dict[str, Any]
) -> None:
    """Else a sign would hold nobody's turn back."""
    (event,) = events_of(update, account="700700")
    assert key_of("telegram", "", event) == key_of("telegram", "", message_in(chat, topic))


def test_a_business_accounts_chats_are_named_by_the_connection() -> None:
    (event,) = events_of(types.UpdateUserTyping(4711, COMPOSES), account="700700", connection="bc77")
    said = message_in({"id": 4711, "type": "private"}, {"business_connection_id": "bc77"}, "business_message")
    assert key_of("telegram", "", event) == key_of("telegram", "", said)


def message_in(chat: dict[str, Any], parts: dict[str, Any], kind: str = "message") -> ChatEvent:
    """What the webhook makes of Ada's message there."""
    said = {"message_id": 1, "from": {"id": 4711, "is_bot": False}, "chat": chat, "date": 1, "text": "hi", **parts}
    body = msgspec.json.encode({"update_id": 1, kind: said})
    (event,) = Telegram({"bot_token": "700700:x"}).read(Request("POST", "https://turntake.test", {}, body)).events
    return event


def test_somebody_who_writes_as_a_chat_is_that_chat() -> None:
    for peer, sender in ((types.PeerChannel(9), "-1000000000009"), (types.PeerChat(8), "-8")):
        (event,) = events_of(types.UpdateChannelUserTyping(66, peer, COMPOSES))
        assert event.sender == sender


def test_what_we_do_ourselves_says_nothing() -> None:
    """Our own typing indicator in a group must not make us wait for ourselves."""
    update = types.UpdateChatUserTyping(55, types.PeerUser(700700), COMPOSES)
    assert events_of(update, own_ids={"700700"}) == []
    assert events_of(update, own_ids={"1"}) != []


class FakeClient:
    """Telethon's client, as far as it is used: it is given updates to tell, and then the connection ends."""

    def __init__(self, me: object = None, updates: Sequence[Any] = (), refusal: Exception | None = None) -> None:
        self.me, self.updates, self.refusal = me, updates, refusal
        self.handlers: list[Any] = []
        self.is_connected = False

    async def connect(self) -> None:
        self.is_connected = True
        if self.refusal:
            raise self.refusal

    async def get_me(self) -> object:
        return self.me

    def add_event_handler(self, handler: Any, event: Any) -> None:
        self.handlers.append((handler, event))

    async def run_until_disconnected(self) -> None:
        for update in self.updates:
            for handler, event in self.handlers:
                if event.filter(update):
                    await handler(update)

    async def disconnect(self) -> None:
        self.is_connected = False


class Listening(TelegramTyping):
    def __init__(self, client: FakeClient, **given: str) -> None:
        super().__init__({**GIVEN, **given})
        self.fake = client

    def client(self) -> Any:
        return self.fake


USER = SimpleNamespace(id=99, bot=False)


async def heard(listener: Listening) -> list[ChatEvent]:
    told: list[ChatEvent] = []

    async def hear(events: Sequence[ChatEvent]) -> None:
        told.extend(events)

    await listener.listen(hear)
    return told


async def test_signs_are_told_in_order_until_the_connection_ends() -> None:
    """Other updates are not; nor is what the bot or the account itself does."""
    client = FakeClient(
        USER,
        [
            types.UpdateUserTyping(4711, COMPOSES),
            types.UpdateUserStatus(4711, types.UserStatusOnline(None)),
            types.UpdateChatUserTyping(55, types.PeerUser(99), COMPOSES),
            types.UpdateChatUserTyping(55, types.PeerUser(700700), COMPOSES),
            types.UpdateUserTyping(4711, types.SendMessageCancelAction()),
        ],
    )
    told = await heard(Listening(client, typing_business_connection="bc77"))
    assert [(event.kind, event.account, event.conversation) for event in told] == [
        ("typing", "700700", "bc77/4711"),
        ("stopped", "700700", "bc77/4711"),
    ]
    assert not client.is_connected


async def test_a_sign_that_the_store_does_not_take_is_dropped() -> None:
    """The next one is seconds away, and this one would come too late."""
    client = FakeClient(USER, [types.UpdateUserTyping(4711, COMPOSES)] * 2)
    tries = 0

    async def hear(events: Sequence[ChatEvent]) -> None:
        nonlocal tries
        tries += 1
        raise StoreUnavailable

    await Listening(client).listen(hear)
    assert tries == 2


@pytest.mark.parametrize(
    "client",
    [
        FakeClient(None),
        FakeClient(SimpleNamespace(id=5, bot=True)),
        FakeClient(USER, refusal=errors.ApiIdInvalidError(None)),
        FakeClient(USER, refusal=errors.AuthKeyUnregisteredError(None)),
        FakeClient(USER, refusal=errors.AuthKeyDuplicatedError(None)),
    ],
)
async def test_credentials_that_are_refused_are_the_operators_affair(client: FakeClient) -> None:
    with pytest.raises(ConfigurationError, match="TYPING_SESSION"):
        await heard(Listening(client))
    assert not client.is_connected


async def test_a_lost_connection_is_left_to_whoever_keeps_listening() -> None:
    with pytest.raises(OSError, match="gone"):
        await heard(Listening(FakeClient(USER, refusal=OSError("gone"))))


def test_an_api_id_is_a_number() -> None:
    with pytest.raises(ConfigurationError, match="TURNTAKE_TELEGRAM_TYPING_API_ID"):
        TelegramTyping({**GIVEN, "typing_api_id": "seventeen"})


async def test_a_session_is_given_as_text_or_as_a_file(tmp_path: Any) -> None:
    """The real client is made, and not connected."""
    session = StringSession()
    session.set_dc(2, "149.154.167.51", 443)
    session.auth_key = AuthKey(b"k" * 256)
    for given, is_file in ((session.save(), False), (str(tmp_path / "1"), True)):
        client = TelegramTyping({**GIVEN, "typing_session": given}).client()
        assert (client.session.auth_key is None) is is_file
        assert (tmp_path / "1.session").exists() is is_file
        client.session.close()
