"""The channel for any sender: three ways to sign, one way to say it."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace
from standardwebhooks import Webhook

from turntake import ConfigurationError
from turntake.accept.intake import key_of
from turntake.clock import SystemClock
from turntake.errors import Forged, Unreadable
from turntake.platforms.channel import ChatEvent, Request
from turntake.platforms.generic.webhooks import Generic
from turntake.standard_webhooks import secrets_in, signature, signing_key

NOW = 1_763_200_000_000
URL = "https://turntake.test/webhooks/generic"
OLD = "whsec_" + base64.b64encode(b"o" * 32).decode()
NEW = "whsec_" + base64.b64encode(b"n" * 31).decode()
SAID = {"conversation_id": "chat", "message_id": "m1", "sender": "ann", "text": "hi"}


def signed(secret: str = OLD, scheme: str = "", now: int = NOW) -> Request:
    channel = Generic({"secret": secret, "scheme": scheme})
    return channel.sample("hi", sender="ann", id="m1", url=URL, now=now)


def request(said: Any, headers: dict[str, str] | None = None) -> Request:
    return Request("POST", URL, headers or {}, said if isinstance(said, bytes) else json.dumps(said).encode())


def read(said: Any, **headers: str) -> tuple[ChatEvent, ...]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Generic({"secret": OLD}).read(request(said, named)).events


def refusal(request: Request, now: int = NOW, **options: str) -> str:
    with pytest.raises(Forged) as refused:
        Generic({"secret": OLD, **options}).verify(request, now)
    return str(refused.value)


def complaint(said: Any) -> str:
    with pytest.raises(Unreadable) as refused:
        read(said)
    return str(refused.value)


# --- who may speak ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", [OLD, NEW, "plain"])
def test_somebody_elses_library_signs_for_us(secret: str) -> None:
    """What `standardwebhooks` signs is believed; with a plain secret, too."""
    body = json.dumps(SAID)
    sender = Webhook(secret if secret.startswith("whsec_") else secret.encode())
    signature = sender.sign("msg_1", datetime.fromtimestamp(NOW / 1000, UTC), body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(NOW // 1000), "webhook-signature": signature}
    Generic({"secret": secret}).verify(request(SAID, headers), NOW)


def test_our_sample_is_believed_by_somebody_elses_library() -> None:
    sample = signed(now=SystemClock().now())
    assert Webhook(OLD).verify(sample.body, dict(sample.headers))["text"] == "hi"


@pytest.mark.parametrize("secrets", [f"{OLD},{NEW}", f"{OLD} {NEW}", f" {NEW} ,\n{OLD}", f"plain {OLD}"])
def test_each_of_several_secrets_is_believed(secrets: str) -> None:
    """So a secret can be changed while messages flow."""
    Generic({"secret": secrets}).verify(signed(OLD), NOW)


def test_white_space_belongs_to_a_plain_secret() -> None:
    assert secrets_in("It's a secret, and another one ,") == ("It's a secret", "and another one")


def test_one_right_signature_in_a_list_is_enough() -> None:
    """Senders that rotate sign several times; versions we do not know are passed over."""
    sample = signed()
    right = sample.headers["webhook-signature"]
    listed = f"v1a,AAAA v1,{'A' * 43}= {right} v2,AAAA"
    Generic({"secret": OLD}).verify(replace(sample, headers={**sample.headers, "webhook-signature": listed}), NOW)
    for wrong in (
        "v2," + right.removeprefix("v1,"),
        right.removeprefix("v1,"),
        right + "x",
        right.replace(" ", "")[:-1],
    ):
        assert refusal(replace(sample, headers={**sample.headers, "webhook-signature": wrong}))


@pytest.mark.parametrize("off_ms", [-300_000, 0, 300_000])
def test_a_timestamp_five_minutes_off_is_accepted(off_ms: int) -> None:
    Generic({"secret": OLD}).verify(signed(), NOW + off_ms)
    more = off_ms + (1_000 if off_ms > 0 else -1_000)
    if off_ms:
        assert "clocks" in refusal(signed(), NOW + more)


@pytest.mark.parametrize("timestamp", ["", "now", "1763200000.0", "-1763200000", "²", "٣", "9" * 5_000, " 1763200000"])
def test_a_timestamp_is_whole_seconds(timestamp: str) -> None:
    sample = signed()
    assert "whole seconds" in refusal(replace(sample, headers={**sample.headers, "webhook-timestamp": timestamp}))


def test_an_empty_id_proves_nothing() -> None:
    """Even if somebody signed it: it could be sent again under any."""
    seconds = str(NOW // 1000)
    right = signature(signing_key(OLD), b"", seconds.encode(), b"{}")
    headers = {"webhook-timestamp": seconds, "webhook-signature": right}
    assert refusal(request(b"{}", headers))
    assert refusal(request(b"{}", {**headers, "webhook-id": ""}))


@pytest.mark.parametrize("odd", ["é", "Ā", "\ud800", "x" * 100_000])
def test_a_header_of_any_characters_is_refused(odd: str) -> None:
    for name in ("webhook-id", "webhook-signature"):
        assert refusal(replace(signed(), headers={**signed().headers, name: odd}))
    for header in ({"x-hub-signature-256": odd}, {"authorization": f"Bearer {odd}"}, {"x-webhook-secret": odd}):
        assert refusal(request(SAID, header))


def test_a_request_is_judged_by_its_strongest_proof() -> None:
    """The right secret in a header does not make up for a wrong signature."""
    shared = {"authorization": "Bearer plain", "x-webhook-secret": "plain"}
    Generic({"secret": "plain"}).verify(request(SAID, shared), NOW)
    for claim in ("webhook-id", "webhook-timestamp", "webhook-signature", "x-hub-signature-256"):
        assert refusal(request(SAID, {**shared, claim: "1763200000"}), secret="plain")


@pytest.mark.parametrize("scheme", ["standard-webhooks", "hub-sha256", "shared-secret"])
def test_a_scheme_that_is_set_is_the_only_one(scheme: str) -> None:
    """And samples are signed by it."""
    own = signed("plain", scheme)
    Generic({"secret": "plain", "scheme": scheme}).verify(own, NOW)
    Generic({"secret": "plain"}).verify(own, NOW)
    for other in {"standard-webhooks", "hub-sha256", "shared-secret"} - {scheme}:
        assert refusal(own, secret="plain", scheme=other)


def test_a_hub_signature_is_hmac_sha256_of_the_raw_body() -> None:
    """The example that GitHub's documentation publishes for this scheme."""
    published = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    hello = request(b"Hello, World!", {"x-hub-signature-256": published})
    Generic({"secret": "It's a Secret to Everybody"}).verify(hello, NOW)
    assert refusal(replace(hello, body=b"Hello, World?"), secret="It's a Secret to Everybody")


@pytest.mark.parametrize("header", ["Bearer plain", "bearer plain", "BEARER  plain "])
def test_the_word_bearer_may_be_written_in_any_case(header: str) -> None:
    Generic({"secret": "plain"}).verify(request(SAID, {"authorization": header}), NOW)


@pytest.mark.parametrize("header", ["plain", "Basic plain", "Bearer", "Bearer ", "Bearer plai", "Bearer plain plain"])
def test_an_authorization_that_is_not_a_bearer_token_is_refused(header: str) -> None:
    assert refusal(request(SAID, {"authorization": header}), secret="plain")


@pytest.mark.parametrize("secret", ["", " ", ",", " , "])
def test_without_a_secret_nobody_is_believed(secret: str) -> None:
    for headers in ({}, {"authorization": "Bearer "}, {"x-webhook-secret": secret}, dict(signed().headers)):
        assert "No secret is set" in refusal(request(SAID, headers), secret=secret)


def test_a_refusal_repeats_nothing() -> None:
    """Neither the secret nor what the stranger sent: it may end up in a log."""
    why = refusal(request(SAID, {"authorization": "Bearer sesame"}), secret="plain-secret")
    assert "sesame" not in why
    assert "plain-secret" not in why


@pytest.mark.parametrize("options", [{"secret": "whsec_!"}, {"secret": OLD, "scheme": "sha1"}])
def test_options_that_cannot_be_right_are_refused_at_start(options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        Generic(options)


# --- what may be said ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [lambda said: said, lambda said: [said], lambda said: {"messages": [said]}])
def test_one_object_a_list_and_messages_say_the_same(shape: Any) -> None:
    assert [event.text for event in read(shape(SAID))] == ["hi"]


def test_snake_case_and_camel_case_say_the_same() -> None:
    snake = SAID | {"reply_to": "m0", "ttl_ms": 5, "group_key": "g", "thread": "t"}
    camel = {"conversationId": "chat", "messageId": "m1", "sender": "ann", "text": "hi"}
    assert read(snake) == read(camel | {"replyTo": "m0", "ttlMs": 5, "groupKey": "g", "topic": "t"})


def test_a_name_in_two_spellings_is_refused() -> None:
    assert (
        complaint(SAID | {"conversation": "other"}) == "`conversation` is given under two names; leave one of them out."
    )


def test_what_is_null_or_unknown_is_passed_over() -> None:
    assert read(SAID | {"reply_to": None, "attachments": None, "colour": [[[]]], "timestamp": None}) == read(SAID)


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("2025-11-15T09:46:40.250Z", 1_763_200_000_250),
        ("2025-11-15T10:46:40.250+01:00", 1_763_200_000_250),
        (1_763_200_000_250, 1_763_200_000_250),
        (1_763_200_000, 1_763_200_000_000),
        (1_763_200_000.25, 1_763_200_000_250),
    ],
)
def test_a_time_is_iso_8601_or_a_number(written: Any, at: int) -> None:
    """A number too small for this century's milliseconds is seconds."""
    assert read(SAID | {"timestamp": written})[0].sent_at == at


@pytest.mark.parametrize("written", ["2025-11-15T09:46:40", "soon", -1, 10**30, "9999-12-31T23:59:59-23:59", True, {}])
def test_an_unreadable_time_is_named_in_the_refusal(written: Any) -> None:
    assert "timestamp" in complaint(SAID | {"timestamp": written})


@pytest.mark.parametrize("name", ["conversation_id", "sender", "text"])
def test_a_missing_field_is_named_with_its_item(name: str) -> None:
    lacking = {key: value for key, value in SAID.items() if key != name}
    for wrong in (lacking, lacking | {name: ""}, lacking | {name: None}):
        assert name in complaint(wrong)
        assert complaint([SAID, wrong]).startswith("Item 1: ")


def test_a_message_of_attachments_alone_is_accepted() -> None:
    (event,) = read({**SAID, "text": None, "attachments": [{"kind": "voice", "url": "https://f.test/1"}]})
    assert (event.text, event.attachments[0].kind) == ("", "voice")
    assert "url" in complaint(SAID | {"attachments": [{"kind": "voice", "url": 5}]})
    assert "kind" in complaint(SAID | {"attachments": [{"url": "https://f.test/1"}]})
    assert "64 bits" in complaint(SAID | {"attachments": [{"kind": "voice", "metadata": {"a": 2**70}}]})


def test_a_signed_request_id_stands_in_for_a_missing_one() -> None:
    """With the place in a list; a header that nobody signed does not."""
    said = {"conversation_id": "chat", "sender": "ann", "text": "hi"}
    assert [event.id for event in read(said, webhook_id="msg_1")] == ["msg_1"]
    assert [event.id for event in read([said, said], webhook_id="msg_1")] == ["msg_1.0", "msg_1.1"]
    assert "message_id" in complaint(said)
    with pytest.raises(Unreadable, match="webhook-id"):
        read(said, webhook_id="m" * 257)
    with pytest.raises(Unreadable, match="message_id"):
        Generic({"secret": "s", "scheme": "hub-sha256"}).read(request(said, {"webhook-id": "msg_1"}))


def test_two_edits_of_one_message_are_two() -> None:
    """Also if the sender names the message by `message_id`, and has no id for the edit."""
    first, second = (read({**SAID, "type": "edit", "text": text})[0] for text in ("one", "two"))
    assert (first.kind, first.target, second.target) == ("edit", "m1", "m1")
    assert first.message_id != second.message_id


@pytest.mark.parametrize("change", [{"type": "edit", "text": "x"}, {"type": "delete"}])
def test_a_change_names_its_target(change: dict[str, Any]) -> None:
    assert "target" in complaint({"conversation_id": "chat", **change})


def test_an_edit_says_what_it_says_now() -> None:
    assert "text" in complaint({"type": "edit", "conversation_id": "chat", "target": "m1"})


@pytest.mark.parametrize(
    ("state", "kind"), [({}, "typing"), ({"state": "start"}, "typing"), ({"state": "stop"}, "stopped")]
)
def test_typing_needs_a_conversation_and_nothing_else(state: dict[str, str], kind: str) -> None:
    assert read({"type": "typing", "conversation_id": "chat", **state})[0].kind == kind
    assert "conversation" in complaint({"type": "typing", **state})
    assert "state" in complaint({"type": "typing", "conversation_id": "chat", "state": "maybe"})


def test_an_unknown_type_is_counted_as_ignored() -> None:
    said = [
        SAID,
        {"type": "poll"},
        {"type": "reaction", "conversation_id": "chat"},
        {"type": "read", "conversation": "c"},
    ]
    answer = Generic({"secret": OLD}).read(request(said)).answer
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert json.loads(answer.body) == {"accepted": 1, "ignored": 3}


@pytest.mark.parametrize("body", [b"", b"hello", b"5", b"null", b'{"messages": {}}', b"[1]", b"[" * 100_000])
def test_a_body_that_is_no_message_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        read(body)


@pytest.mark.parametrize(
    ("member", "why"),
    [
        (b'"text": NaN', "not JSON"),
        (b'"text": "\xff"', "not UTF-8"),
        (b'"text": "\\ud800"', "not JSON"),
        (b'"text": "a", "text": "b"', "twice"),
        (b'"x": [{"a": 1, "a": 1}]', "twice"),
        (b'"x": ' + b"[" * 5_000 + b"]" * 5_000, "nested"),
        (b'"metadata": ' + b'{"a":' * 100 + b"1" + b"}" * 100, "nested"),
        (b'"metadata": {"a": 99999999999999999999}', "64 bits"),
        (b'"message_id": ' + b"9" * 400, "256 bytes"),
        (b'"message_id": ' + b"9" * 5_000, "out of range"),
        (b'"timestamp": 1e400', "out of range"),
    ],
    ids=lambda value: value[:24].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_what_no_two_readers_agree_on_is_unreadable(member: bytes, why: str) -> None:
    """Next to all that a message needs, so that nothing else can be the reason."""
    needed = b'{"conversation_id": "chat", "sender": "ann", "attachments": [{"kind": "image"}]'
    assert read(needed + b"}", webhook_id="msg_1")
    with pytest.raises(Unreadable, match=why):
        read(needed + b", " + member + b"}", webhook_id="msg_1")


@pytest.mark.parametrize("name", ["conversation_id", "message_id", "sender", "reply_to", "thread", "group_key"])
def test_an_id_is_256_bytes_at_most(name: str) -> None:
    assert read({**SAID, name: "é" * 128})
    assert complaint({**SAID, name: "é" * 129})


def test_an_account_leaves_room_for_the_name_of_ours() -> None:
    """Where we have several accounts, ours comes before it in the conversation's key."""
    longest = {**SAID, "account": "é" * 95}
    (event,) = read(longest)
    assert key_of("generic", "n" * 64, event).account.endswith("é" * 95)
    assert "`account` is longer than 190 bytes" in complaint({**SAID, "account": "é" * 96})


def test_a_refusal_does_not_repeat_what_was_sent() -> None:
    assert "our secret" not in complaint({"type": "typing", "conversation_id": "c", "state": "our secret"})


def test_a_conversation_with_control_characters_is_refused() -> None:
    assert "control characters" in complaint(SAID | {"conversation_id": "a\x00b"})


def test_a_request_holds_a_hundred_items_at_most() -> None:
    assert len(read([SAID] * 100)) == 100
    assert "101" in complaint([SAID] * 101)
