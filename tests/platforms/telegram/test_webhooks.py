"""Telegram's webhooks: who is believed, and what they say."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from turntake.errors import Forged, Unreadable
from turntake.platforms.channel import ChatEvent, Request
from turntake.platforms.telegram.webhooks import Telegram, bot_in
from turntake.testing.channel_contract import ChannelContract
from turntake.testing.recording import recordings_in

URL = "https://turntake.test/webhooks/telegram"
HEADER = "x-telegram-bot-api-secret-token"
ADA = {"id": 4711, "is_bot": False, "first_name": "Ada"}
PRIVATE = {"id": 4711, "type": "private"}


class TestTelegram(ChannelContract):
    channel = Telegram
    recordings = recordings_in(Path(__file__).parents[2] / "recordings" / "telegram")
    proof = (HEADER,)
    covers_body = False


def event_of(update: dict[str, Any], bot_token: str = "") -> ChatEvent:
    body = msgspec.json.encode({"update_id": 1, **update})
    (event,) = Telegram({"bot_token": bot_token}).read(Request("POST", URL, {}, body)).events
    return event


def message(**parts: Any) -> dict[str, Any]:
    return {"message": {"message_id": 1, "from": ADA, "chat": PRIVATE, "date": 1763200000, **parts}}


@pytest.mark.parametrize("given", ["", "nope", "SESAME", "sesame ", "sesam", "sésame", "sesame, other", "\ud800"])
def test_only_the_token_itself_is_believed(given: str) -> None:
    request = Request("POST", URL, {HEADER: given}, b"{}")
    with pytest.raises(Forged) as refusal:
        Telegram({"secret_token": "sesame"}).verify(request, 0)
    assert refusal.value.status == 401
    Telegram({"secret_token": "sesame"}).verify(replace(request, headers={HEADER: "sesame"}), 0)


def test_an_update_with_a_lone_surrogate_is_still_read() -> None:
    body = (
        rb'{"update_id":1,"message":{"message_id":1,"chat":{"id":7,"type":"private"},"from":{"id":7},"text":"a\ud83d"}}'
    )
    (event,) = Telegram({}).read(Request("POST", URL, {}, body)).events
    assert (event.kind, event.text) == ("message", "a\ufffd")


def test_an_unknown_update_is_unsupported_even_if_it_is_named_like_an_event() -> None:
    assert {event_of({kind: {}}).kind for kind in ("typing", "stopped", "edit", "delete", "postback")} == {
        "unsupported"
    }


def test_two_tokens_are_both_valid_during_a_rotation() -> None:
    for given in ("old", "new"):
        Telegram({"secret_token": "old,new"}).verify(Request("POST", URL, {HEADER: given}), 0)


def test_an_unset_token_says_what_to_set() -> None:
    with pytest.raises(Forged, match="set TURNTAKE_TELEGRAM_SECRET_TOKEN"):
        Telegram({}).verify(Request("POST", URL, {HEADER: ""}), 0)


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(Forged) as refusal:
        Telegram({"secret_token": "sesame"}).verify(Request("POST", URL, {HEADER: "guess-17"}), 0)
    assert "guess-17" not in str(refusal.value)
    assert "sesame" not in str(refusal.value)


@pytest.mark.parametrize("body", [b"", b"text", b'{"a":"\xff"}', b"[]", b"null", b"1", b'{"a":NaN}', b"[" * 100_000])
def test_what_is_no_update_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        Telegram({}).read(Request("POST", URL, {}, body))


def test_the_answer_is_empty() -> None:
    """Telegram would carry out what it finds there."""
    answer = Telegram({}).read(Request("POST", URL, {}, b"{}")).answer
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize(
    "said",
    [
        {"message": None},
        {"message": "text"},
        {"message": {"text": "hi"}},
        message(chat={"type": "private"}),
        message(message_id=None),
        message(message_id=True),
        message(chat=[4711], text="hi"),
    ],
)
def test_a_message_that_names_no_chat_or_has_no_id_is_passed_over(said: dict[str, Any]) -> None:
    assert event_of(said).kind == "unsupported"


def test_what_is_broken_in_part_keeps_its_words() -> None:
    """A message is worth more than the parts of it that nobody can read."""
    broken = {"from": 7, "date": "soon", "photo": [], "quote": [], "reply_to_message": "x", "media_group_id": {}}
    event = event_of(message(text="hi", **broken))
    assert (event.kind, event.text, event.sender) == ("message", "hi", "")
    assert (event.sent_at, event.attachments, event.reply_to, event.metadata) == (None, (), None, {})


@pytest.mark.parametrize(("date", "sent_at"), [(0, None), (-1, None), (2**70, None), (1, 1000), (True, None)])
def test_an_invalid_date_is_left_out(date: int, sent_at: int | None) -> None:
    assert event_of(message(text="hi", date=date)).sent_at == sent_at


def test_a_number_that_no_store_can_keep_is_left_out() -> None:
    event = event_of(message(voice={"file_id": "f", "duration": 2**70, "file_size": 2**63 - 1}))
    assert event.attachments[0].metadata == {"size": 2**63 - 1}


@pytest.mark.parametrize(
    ("media", "kind"),
    [
        ({"video": {"file_id": "f"}}, "video"),
        ({"video_note": {"file_id": "f"}}, "video_note"),
        ({"audio": {"file_id": "f"}}, "audio"),
        ({"sticker": {"file_id": "f", "emoji": "👋"}}, "sticker"),
        ({"photo": [{"file_id": "e"}, {"file_id": "f"}], "live_photo": {"file_id": "x"}}, "image"),
        ({"live_photo": {"file_id": "f"}}, "live_photo"),
    ],
)
def test_a_message_has_one_medium(media: dict[str, Any], kind: str) -> None:
    """Whatever else Telegram repeats it in."""
    event = event_of(message(**media))
    assert [(attachment.kind, attachment.id) for attachment in event.attachments] == [(kind, "f")]


@pytest.mark.parametrize("kind", ["paid_media", "game", "story", "checklist", "invoice", "dice"])
def test_what_cannot_be_carried_is_named(kind: str) -> None:
    event = event_of(message(**{kind: {"x": 1}}))
    assert (event.kind, [attachment.kind for attachment in event.attachments]) == ("message", [kind])


@pytest.mark.parametrize(
    "at", [{}, {"latitude": 1}, {"latitude": "1", "longitude": 2}, {"latitude": 2**70, "longitude": 1}]
)
def test_a_location_without_coordinates_is_left_out(at: dict[str, Any]) -> None:
    assert event_of(message(location=at)).attachments == ()


@pytest.mark.parametrize(
    ("origin", "whom"),
    [
        ({"type": "user", "sender_user": {"id": 5, "first_name": "Bob"}}, "Bob"),
        ({"type": "hidden_user", "sender_user_name": "Carl"}, "Carl"),
        ({"type": "channel", "chat": {"id": -1009, "title": "News"}, "message_id": 3}, "News"),
        ({"type": "chat", "sender_chat": {"id": -5}}, "-5"),
    ],
)
def test_a_forwarded_message_says_whose_it_was(origin: dict[str, Any], whom: str) -> None:
    assert event_of(message(text="hi", forward_origin=origin)).metadata["forwardedFrom"] == whom


def test_a_message_by_way_of_a_bot_is_still_a_persons() -> None:
    event = event_of(message(text="hi", via_bot={"id": 5, "is_bot": True, "username": "gif"}))
    assert (event.kind, event.metadata["viaBot"]) == ("message", "gif")


def test_a_reply_into_another_chat_is_no_reply_here() -> None:
    event = event_of(message(text="hi", external_reply={"message_id": 5, "chat": {"id": -1}}))
    assert (event.reply_to, event.metadata["externalReplyTo"]) == (None, "5")


def test_our_own_bot_is_known_by_its_token() -> None:
    """Even where Telegram does not say that the author is a bot."""
    said = message(text="hi", **{"from": {"id": 700700, "first_name": "Bot"}})
    assert event_of(said, "700700:secret").kind == "bot_message"
    assert event_of(said).kind == "message"


@pytest.mark.parametrize(("token", "bot"), [("700700:x", "700700"), (" 7:x ", "7"), ("x:7", ""), ("7", ""), ("", "")])
def test_the_account_is_the_bots_id(token: str, bot: str) -> None:
    assert bot_in(token) == bot
    assert event_of(message(text="hi"), token).account == bot


UPDATES = (
    "business_connection guest_message message_reaction_count inline_query chosen_inline_result shipping_query "
    "pre_checkout_query purchased_paid_media poll poll_answer my_chat_member chat_member chat_join_request "
    "chat_boost removed_chat_boost managed_bot channel_post edited_channel_post"
)


@pytest.mark.parametrize("kind", UPDATES.split())
def test_an_update_that_nobody_said_to_the_bot_is_passed_over(kind: str) -> None:
    event = event_of({kind: message(text="hi")["message"]})
    assert (event.kind, event.id, event.conversation) == (kind, "1", "")


def test_a_sample_keeps_ids_that_are_no_numbers() -> None:
    telegram = Telegram({"secret_token": "sesame"})
    (event,) = telegram.read(telegram.sample("hi", sender="ada", id="m-1", url=URL, now=1_763_200_000_000)).events
    assert (event.conversation, event.sender, event.id) == ("ada", "ada", "m-1")
    assert event.sent_at == 1_763_200_000_000


def test_a_rich_message_is_read_block_by_block() -> None:
    """It has no text of its own: headings, lists, tables and captions are its lines."""
    blocks = [
        {"type": "heading", "size": 1, "text": "Trip"},
        {
            "type": "paragraph",
            "text": [
                "From ",
                {"type": "bold", "text": "Rome"},
                " ",
                {"type": "custom_emoji", "custom_emoji_id": "1", "alternative_text": "🚆"},
            ],
        },
        {
            "type": "list",
            "items": [
                {"label": "1.", "blocks": [{"type": "paragraph", "text": "pack"}]},
                {"label": "2.", "blocks": [{"type": "paragraph", "text": "leave"}]},
            ],
        },
        {"type": "table", "cells": [[{"text": "day"}, {"text": "price"}], [{"text": "Fri"}, {"text": "9"}]]},
        {
            "type": "details",
            "summary": "more",
            "blocks": [{"type": "blockquote", "blocks": [{"type": "paragraph", "text": "inside"}], "credit": "Ann"}],
        },
        {"type": "mathematical_expression", "expression": "a+b"},
        {"type": "divider"},
        {
            "type": "photo",
            "photo": [{"file_id": "s"}, {"file_id": "l"}],
            "caption": {"text": "sea", "credit": "Ben"},
        },
        {"type": "voice_note", "voice_note": {"file_id": "v", "duration": 3}},
    ]
    event = event_of(message(rich_message={"blocks": blocks}))
    assert event.kind == "message"
    assert event.text.split("\n") == [
        "Trip",
        "From Rome 🚆",
        "1. pack",
        "2. leave",
        "day | price",
        "Fri | 9",
        "more",
        "inside",
        "Ann",
        "a+b",
        "sea",
        "Ben",
    ]
    assert [(each.kind, each.id) for each in event.attachments] == [("image", "l"), ("voice", "v")]


def test_a_rich_message_counts_forwarded_and_edited_too() -> None:
    rich = {"blocks": [{"type": "paragraph", "text": "new"}]}
    assert event_of(message(rich_message=rich, forward_origin={"sender_user_name": "Carl"})).text == "new"
    edited = {"edited_message": message(rich_message=rich, edit_date=1763200001)["message"]}
    assert (event_of(edited).kind, event_of(edited).text) == ("edit", "new")


@pytest.mark.parametrize("name", ["blocks", "items", "text"])
def test_a_rich_message_without_end_is_read_to_some_depth(name: str) -> None:
    block: Any = {"type": "paragraph", "text": "deep"}
    for _ in range(400):
        block = {"text": block} if name == "text" else {name: [block]}
    event = event_of(message(rich_message={"blocks": [{"text": "top"}, block]}))
    assert event.text.startswith("top")
    assert "deep" not in event.text


DIRECT = {"id": -1005, "type": "supergroup", "is_direct_messages": True}
TOPIC = {"topic_id": 4711, "user": ADA}


def test_a_direct_message_to_a_channel_is_a_chat_with_one_person() -> None:
    event = event_of(message(chat=DIRECT, direct_messages_topic=TOPIC, text="hi"))
    assert (event.kind, event.conversation, event.thread, event.is_group) == ("message", "-1005", "direct-4711", False)


@pytest.mark.parametrize("author", [{"sender_chat": {"id": -1004, "type": "channel"}}, {"from": {"id": 5}}])
def test_what_a_channel_answers_in_its_direct_messages_is_our_own(author: dict[str, Any]) -> None:
    """Whoever it is that writes for the channel: only the person who opened the topic is asked for an answer."""
    assert event_of(message(chat=DIRECT, direct_messages_topic=TOPIC, text="hi", **author)).kind == "echo"


def test_what_a_person_sends_from_a_page_of_the_bot_is_a_message() -> None:
    event = event_of(message(web_app_data={"data": '{"day":"Fri"}', "button_text": "Book"}))
    assert (event.kind, event.text) == ("message", '{"day":"Fri"}')
    assert event.metadata["payload"] == '{"day":"Fri"}'
    assert event.metadata["buttonText"] == "Book"


def test_people_and_chats_that_were_chosen_are_attachments() -> None:
    users = [{"user_id": 5, "first_name": "Bob"}, {"user_id": 6}]
    people = event_of(message(users_shared={"request_id": 1, "users": users}))
    assert people.kind == "message"
    assert [(each.kind, each.name, each.metadata) for each in people.attachments] == [
        ("contact", "Bob", {"userId": 5}),
        ("contact", None, {"userId": 6}),
    ]
    chat = event_of(message(chat_shared={"request_id": 1, "chat_id": -1009, "title": "News"}))
    assert [(each.kind, each.id, each.name) for each in chat.attachments] == [("chat", "-1009", "News")]


def test_a_checklist_comes_with_its_tasks() -> None:
    tasks = [{"id": 1, "text": "milk"}, {"id": 2, "text": "bread"}]
    (checklist,) = event_of(message(checklist={"title": "Buy", "tasks": tasks})).attachments
    assert (checklist.kind, checklist.name, checklist.metadata) == ("checklist", "Buy", {"tasks": ["milk", "bread"]})
