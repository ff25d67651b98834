"""Discord's interactions and gateway events: who is believed, what they mean, how they are answered."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from nacl.signing import SigningKey

from turntake import ConfigurationError
from turntake.errors import Forged, Unreadable
from turntake.platforms.channel import SAID, ChatEvent, Request
from turntake.platforms.discord.content import gateway_events
from turntake.platforms.discord.webhooks import Discord
from turntake.rules.message import Attachment
from turntake.testing.channel_contract import ChannelContract
from turntake.testing.recording import Recording, recordings_in

NOW = 1_790_000_000_000
URL = "https://bot.example/webhooks/discord"
SEED = "a1" * 32
KEY = SigningKey(bytes.fromhex(SEED))
PUBLIC = KEY.verify_key.encode().hex()
OTHER = SigningKey(bytes.fromhex("b2" * 32)).verify_key.encode().hex()
ORDER = 2**252 + 27742317777372353535851937790883648493
RECORDINGS = recordings_in(Path(__file__).parents[2] / "recordings" / "discord")
DISCORD = Discord({"public_key": PUBLIC})
BOT = "9000"
GATEWAY = (
    "MESSAGE_CREATE",
    "MESSAGE_UPDATE",
    "MESSAGE_DELETE",
    "MESSAGE_DELETE_BULK",
    "TYPING_START",
    "MESSAGE_REACTION_ADD",
)


class TestDiscord(ChannelContract):
    channel = Discord
    recordings = RECORDINGS
    proof = ("x-signature-timestamp", "x-signature-ed25519")


def recorded(name: str) -> Recording:
    return next(recording for recording in RECORDINGS if recording.name == name)


def with_headers(**headers: str) -> Request:
    request = recorded("ask").request
    return replace(request, headers={**request.headers, **{f"x-signature-{k}": v for k, v in headers.items()}})


def refusal(request: Request, now: int = NOW, key: str = PUBLIC) -> str:
    with pytest.raises(Forged) as refused:
        Discord({"public_key": key}).verify(request, now)
    assert refused.value.status == 401
    return str(refused.value)


def answered(name: str) -> Any:
    answer = DISCORD.read(recorded(name).request).answer
    assert (answer.status, answer.content_type) == (200, "application/json")
    return json.loads(answer.body)


# --- who is believed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late_ms", [-300_000, 0, 300_000])
def test_a_timestamp_five_minutes_off_is_accepted(late_ms: int) -> None:
    DISCORD.verify(recorded("ask").request, NOW + late_ms)


@pytest.mark.parametrize("late_ms", [-300_001, 300_001])
def test_a_timestamp_more_than_five_minutes_off_is_refused(late_ms: int) -> None:
    assert "five minutes" in refusal(recorded("ask").request, NOW + late_ms)


@pytest.mark.parametrize(
    "signature", ["", "not hex", "ab" * 63, "ab" * 65, "a" * 127, "ab " * 64, "é" * 128, "٣" * 128]
)
def test_a_malformed_signature_is_refused(signature: str) -> None:
    assert "not as Discord writes it" in refusal(with_headers(ed25519=signature))


@pytest.mark.parametrize("seconds", ["", "abc", "1790000000.0", "-1790000000", "١٧٩٠"])
def test_a_time_that_is_not_in_whole_seconds_is_refused(seconds: str) -> None:
    assert "not as Discord writes it" in refusal(with_headers(timestamp=seconds))


def test_a_signature_has_one_spelling() -> None:
    """The same signature with the group's order added to its second half would pass a careless check."""
    signature = bytes.fromhex(recorded("ask").request.headers["x-signature-ed25519"])
    second = int.from_bytes(signature[32:], "little") + ORDER
    assert "not that of this body" in refusal(
        with_headers(ed25519=(signature[:32] + second.to_bytes(32, "little")).hex())
    )


def test_a_signature_in_capitals_is_the_same() -> None:
    DISCORD.verify(with_headers(ed25519=recorded("ask").request.headers["x-signature-ed25519"].upper()), NOW)


def test_both_keys_are_accepted_during_a_rotation() -> None:
    request = recorded("ask").request
    Discord({"public_key": f"{OTHER}, {PUBLIC}"}).verify(request, NOW)
    assert "not that of this body" in refusal(request, key=OTHER)


def test_without_a_key_the_refusal_says_what_to_set() -> None:
    assert "TURNTAKE_DISCORD_PUBLIC_KEY" in refusal(recorded("ask").request, key="")


@pytest.mark.parametrize("key", ["abc", "xy" * 32, PUBLIC[:-1], PUBLIC + "0"])
def test_a_key_that_cannot_be_right_is_told_at_once(key: str) -> None:
    with pytest.raises(ConfigurationError, match="64 hexadecimal digits"):
        Discord({"public_key": key})


def test_only_discord_signs_for_its_own_key() -> None:
    with pytest.raises(ConfigurationError, match="Only Discord can sign"):
        DISCORD.sample("hello", sender="42", id="1", url=URL, now=NOW)


# --- how they are answered -------------------------------------------------------------------------------------------


def test_a_ping_gets_a_pong() -> None:
    assert answered("ping") == {"type": 1}


@pytest.mark.parametrize("name", ["ask", "form", "command-on-a-message"])
def test_a_command_or_a_form_is_answered_later(name: str) -> None:
    assert answered(name) == {"type": 5}


@pytest.mark.parametrize("name", ["button", "menu"])
def test_after_a_button_the_message_stays_as_it_is(name: str) -> None:
    assert answered(name) == {"type": 6}


def test_half_typed_options_are_not_completed() -> None:
    assert answered("completion") == {"type": 8, "data": {"choices": []}}


@pytest.mark.parametrize("name", ["notice", "notice-ping"])
def test_notices_are_answered_with_an_empty_204(name: str) -> None:
    answer = DISCORD.read(recorded(name).request).answer
    assert (answer.status, answer.body) == (204, b"")


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_object_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        DISCORD.read(Request("POST", URL, {}, body))


# --- what the gateway says -------------------------------------------------------------------------------------------


def heard(name: str, **data: Any) -> ChatEvent:
    (event,) = gateway_events(name, data, BOT)
    return event


def post(**more: Any) -> dict[str, Any]:
    author = {"id": "42", "username": "ann"}
    said = {"id": "600", "channel_id": "8000", "type": 0, "author": author, "content": "hi", "attachments": []}
    return said | {"timestamp": "2026-09-21T13:33:20.123000+00:00", "edited_timestamp": None} | more


def test_a_message_in_a_server() -> None:
    event = heard("MESSAGE_CREATE", **post(guild_id="7000", content="<@9000> hi"))
    assert event == ChatEvent(
        kind="message",
        account=BOT,
        conversation="8000",
        sender="42",
        id="600",
        text="<@9000> hi",
        sent_at=1_789_997_600_123,
        is_group=True,
    )


@pytest.mark.parametrize(
    ("place", "is_group"), [({}, False), ({"channel_type": 3}, True), ({"guild_id": "7000"}, True)]
)
def test_a_direct_chat_is_one_without_a_server(place: dict[str, Any], is_group: bool) -> None:
    assert heard("MESSAGE_CREATE", **post(**place)).is_group is is_group


def test_a_reply_names_what_it_answers_and_a_forward_does_not() -> None:
    answer = heard("MESSAGE_CREATE", **post(type=19, message_reference={"message_id": "599"}, referenced_message=None))
    forward = heard(
        "MESSAGE_CREATE",
        **post(
            content="",
            message_reference={"type": 1, "message_id": "599"},
            message_snapshots=[{"message": {"content": "closed on Monday", "attachments": [{"id": "1"}]}}],
        ),
    )
    assert (answer.kind, answer.reply_to) == ("message", "599")
    assert (forward.kind, forward.text, forward.reply_to) == ("message", "closed on Monday", None)
    assert [attachment.id for attachment in forward.attachments] == ["1"]


def test_files_stickers_and_voice_messages_are_attachments() -> None:
    picture = {"id": "1", "filename": "a.png", "content_type": "image/png", "url": "u", "description": "a cat"}
    paper = {"id": "2", "filename": "a.pdf", "content_type": "application/pdf", "url": "u"}
    both = heard("MESSAGE_CREATE", **post(content="", attachments=[picture, paper]))
    assert [(one.kind, one.name, one.caption) for one in both.attachments] == [
        ("image", "a.png", "a cat"),
        ("file", "a.pdf", None),
    ]
    sticker = heard("MESSAGE_CREATE", **post(content="", sticker_items=[{"id": "3", "name": "wave"}]))
    assert sticker.attachments == (Attachment("sticker", id="3", name="wave"),)
    sound = {"id": "4", "content_type": "audio/ogg", "url": "u", "duration_secs": 2.4, "waveform": "AA=="}
    voice = heard("MESSAGE_CREATE", **post(content="", flags=1 << 13, attachments=[sound]))
    assert voice.attachments == (Attachment("voice", "u", "4", "audio/ogg", metadata={"duration_ms": 2400}),)


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"author": {"id": BOT, "bot": True}}, "echo"),
        ({"author": {"id": "43", "bot": True}}, "bot_message"),
        ({"webhook_id": "44"}, "bot_message"),
        ({"type": 7}, "system"),
        ({"type": 18}, "system"),
        ({"content": "", "guild_id": "7000"}, "empty"),
    ],
)
@pytest.mark.parametrize("name", ["MESSAGE_CREATE", "MESSAGE_UPDATE"])
def test_what_no_person_wrote_is_not_buffered(name: str, more: dict[str, Any], kind: str) -> None:
    """An empty message is one whose text is kept back, for want of the intent."""
    event = heard(name, **post(edited_timestamp="2026-09-21T13:34:00+00:00") | more)
    assert event.kind == ("message_update" if (name, kind) == ("MESSAGE_UPDATE", "empty") else kind)
    assert event.kind not in SAID
    assert event.text == ""


def test_an_edit_changes_the_message_it_is_of() -> None:
    event = heard("MESSAGE_UPDATE", **post(content="hello", edited_timestamp="2026-09-21T13:34:00.500000+00:00"))
    assert (event.kind, event.target, event.text, event.sender) == ("edit", "600", "hello", "42")
    assert (event.id, event.sent_at) == ("2026-09-21T13:34:00.500000+00:00", 1_789_997_640_500)


def test_two_edits_count_twice_and_a_redelivered_edit_once() -> None:
    once, again, later = (
        heard("MESSAGE_UPDATE", **post(edited_timestamp=f"2026-09-21T13:34:0{second}+00:00")) for second in (1, 1, 2)
    )
    assert once.message_id == again.message_id != later.message_id


def test_a_link_preview_is_no_edit() -> None:
    assert heard("MESSAGE_UPDATE", **post(embeds=[{"title": "Menu"}])).kind == "message_update"


def test_a_deletion_names_the_message_and_a_bulk_one_each_of_them() -> None:
    one = heard("MESSAGE_DELETE", id="600", channel_id="8000", guild_id="7000")
    assert (one.kind, one.target, one.conversation, one.is_group) == ("delete", "600", "8000", True)
    bulk = gateway_events("MESSAGE_DELETE_BULK", {"ids": ["600", "601"], "channel_id": "8000"}, BOT)
    assert [(event.kind, event.target) for event in bulk] == [("delete", "600"), ("delete", "601")]


def test_typing_counts_for_ten_seconds() -> None:
    event = heard("TYPING_START", channel_id="8000", user_id="42", timestamp=1_790_000_000)
    assert event == ChatEvent(
        kind="typing", account=BOT, conversation="8000", sender="42", sent_at=NOW, ttl_ms=10_000, is_group=False
    )


def test_typing_of_bots_is_ignored() -> None:
    assert gateway_events("TYPING_START", {"channel_id": "8000", "user_id": BOT}, BOT) == []
    other = {"channel_id": "8000", "user_id": "43", "member": {"user": {"id": "43", "bot": True}}}
    assert gateway_events("TYPING_START", other, BOT) == []


@pytest.mark.parametrize(("name", "is_removed"), [("MESSAGE_REACTION_ADD", False), ("MESSAGE_REACTION_REMOVE", True)])
def test_a_reaction_changes_nothing(name: str, is_removed: bool) -> None:
    event = heard(name, user_id="42", channel_id="8000", message_id="600", emoji={"id": None, "name": "👍"})
    assert (event.kind, event.target, event.sender) == ("reaction", "600", "42")
    assert event.metadata == {"emoji": "👍", "is_removed": is_removed}


@pytest.mark.parametrize("name", ["READY", "GUILD_CREATE", "PRESENCE_UPDATE", "SOMETHING_NEW"])
def test_what_is_not_about_messages_is_passed_over(name: str) -> None:
    assert gateway_events(name, post(), BOT) == []


def test_without_a_time_the_id_tells_it() -> None:
    id = str((NOW + 7 - 1_420_070_400_000) << 22)
    assert heard("MESSAGE_CREATE", **post(id=id, timestamp=None)).sent_at == NOW + 7


ODD: list[Any] = [None, True, -1, 10**30, 1e308, "", "x", [], [None], ["x"], [{}], {}, {"id": 5}, {"message": "x"}]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_value_in_any_place_breaks_nothing(odd: Any) -> None:
    """Every event of it could be kept."""
    flags = {
        "flags": 1 << 13,
        "message_reference": {},
        "message_snapshots": [],
        "sticker_items": [],
        "webhook_id": None,
    }
    whole = post(edited_timestamp="2026-09-21T13:34:00+00:00", guild_id="7", user_id="42", member={}, ids=[], emoji={})
    for name in GATEWAY:
        for field in whole | flags:
            for event in gateway_events(name, whole | flags | {field: odd}, BOT):
                msgspec.msgpack.encode(event)
                assert event.message_id
        for file in ({"duration_secs": odd}, {"url": odd}, {"content_type": odd}):
            gateway_events(name, whole | {"attachments": [file]}, BOT)


# --- what else can be said -------------------------------------------------------------------------------------------


def interaction(kind: int, bot_token: str = "", **parts: Any) -> ChatEvent:
    whole = {"id": "600", "application_id": "9000", "type": kind, "token": "interaction-token", "channel_id": "8000"}
    body = msgspec.json.encode(whole | {"user": {"id": "42"}} | parts)
    (event,) = Discord({"public_key": PUBLIC, "bot_token": bot_token}).read(Request("POST", URL, {}, body)).events
    return event


def test_the_token_of_an_interaction_is_nowhere_to_be_read() -> None:
    """It lets its holder speak as the bot, and messages are stored, shown and handed to the agent."""
    for bot_token in ("", "the bot's token"):
        event = interaction(2, bot_token, data={"name": "ask"})
        assert "interaction-token" not in repr(event)
        assert event.metadata["command"] == "ask"
    assert interaction(2, "the bot's token").metadata["interaction"].keys() == {
        "sealed_token",
        "application_id",
        "type",
    }


def test_uploaded_files_are_attachments_of_the_form() -> None:
    """The field has only their ids."""
    upload = {"type": 18, "component": {"type": 19, "custom_id": "photo", "values": ["77"]}}
    words = {"type": 18, "component": {"type": 4, "custom_id": "note", "value": "it is broken"}}
    files = {"77": {"id": "77", "filename": "a.png", "content_type": "image/png", "url": "u"}}
    data = {"custom_id": "report", "components": [words, upload], "resolved": {"attachments": files}}
    event = interaction(5, data=data)
    assert (event.kind, event.text) == ("message", "it is broken")
    assert [(each.kind, each.id) for each in event.attachments] == [("image", "77")]
    assert interaction(5, data=data | {"components": [upload]}).text == ""


BUTTON = {"type": 2, "custom_id": "yes", "label": "Yes, please"}


@pytest.mark.parametrize(
    "components",
    [
        [{"type": 1, "components": [BUTTON]}],
        [{"type": 9, "components": [{"type": 10, "content": "Shall I?"}], "accessory": BUTTON}],
        [{"type": 17, "components": [{"type": 1, "components": [BUTTON]}]}],
        [{"type": 17, "components": [{"type": 9, "components": [], "accessory": BUTTON}]}],
    ],
)
def test_a_button_is_known_by_its_label_wherever_it_stands(components: list[dict[str, Any]]) -> None:
    event = interaction(3, data={"custom_id": "yes"}, message={"id": "1", "components": components})
    assert (event.kind, event.text) == ("postback", "Yes, please")


def test_buttons_nested_without_end_are_not_looked_for() -> None:
    components: list[dict[str, Any]] = [BUTTON]
    for _ in range(400):
        components = [{"type": 17, "components": components}]
    assert interaction(3, data={"custom_id": "yes"}, message={"id": "1", "components": components}).text == "yes"


def test_a_poll_is_an_attachment() -> None:
    poll = {
        "question": {"text": "When?"},
        "answers": [{"poll_media": {"text": "Fri"}}, {"poll_media": {"text": "Sat"}}],
    }
    event = heard("MESSAGE_CREATE", **post(content="", poll=poll))
    assert event.kind == "message"
    assert event.attachments == (Attachment("poll", name="When?", metadata={"options": ["Fri", "Sat"]}),)


@pytest.mark.parametrize(
    ("held", "text", "kinds"),
    [
        (
            {"embeds": [{"title": "Menu", "description": "fish", "url": "https://x.test"}]},
            "Menu\nfish\nhttps://x.test",
            [],
        ),
        ({"sticker_items": [{"id": "3", "name": "wave"}]}, "", ["sticker"]),
        ({"content": "hi", "embeds": [{"title": "Menu"}]}, "hi", []),
    ],
)
def test_a_forward_of_anything_is_a_message(held: dict[str, Any], text: str, kinds: list[str]) -> None:
    forward = post(content="", message_reference={"type": 1}, message_snapshots=[{"message": held}])
    event = heard("MESSAGE_CREATE", **forward)
    assert (event.kind, event.text) == ("message", text)
    assert [each.kind for each in event.attachments] == kinds
