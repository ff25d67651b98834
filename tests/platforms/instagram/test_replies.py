"""Replies to Instagram's direct messages: what differs from Messenger's."""

from collections.abc import Iterator

import pytest

from harness.platforms.meta import TOKEN, InstagramApi, made, refused, said
from turntake import ConversationKey, GiveUp
from turntake.deliver.split import split
from turntake.platforms.instagram.replies import InstagramReplies
from turntake.platforms.instagram.webhooks import Instagram
from turntake.platforms.replies import Recipient
from turntake.rules.message import Message

IGSID, ACCOUNT = "9100000000000001", "17841400000000077"


@pytest.fixture
def api() -> Iterator[InstagramApi]:
    with InstagramApi() as running:
        yield running


def sender(base: str, token: str = TOKEN) -> InstagramReplies:
    return InstagramReplies({"access_token": token, "api_base": base})


def to(account: str = ACCOUNT) -> Recipient:
    key = ConversationKey.of(IGSID, channel="instagram", account=account)
    return Recipient(key, "turn_1", (Message("g_1", "hi"),))


def test_a_reply_leaves_from_the_account_that_was_written_to(api: InstagramApi) -> None:
    writer = sender(api.url)
    assert writer.check(made(writer.reply_call(to(), "Olá", "r"))) == "m_out1"
    assert (api.sent, api.calls[0].path) == ([(IGSID, "Olá")], f"/{ACCOUNT}/messages")


@pytest.mark.parametrize("account", ["..", "me?x", "1/2"])
def test_an_id_cannot_lead_the_token_elsewhere(account: str) -> None:
    with pytest.raises(GiveUp, match="The account's id"):
        sender("https://graph.instagram.com/v25.0").reply_call(to(f"shop/{account}"), "hi", "r")


def test_by_default_it_goes_to_instagrams_own_server() -> None:
    defaults = {option.name: option.default for option in Instagram.options}
    url = InstagramReplies({**defaults, "access_token": TOKEN}).reply_call(to(), "hi", "r").url
    assert url == f"https://graph.instagram.com/v25.0/{ACCOUNT}/messages"


def test_an_app_linked_to_a_page_answers_as_that_page() -> None:
    assert sender("https://graph.facebook.com/v25.0").reply_call(to(), "hi", "r").url.endswith("/v25.0/me/messages")
    assert sender("https://graph.instagram.com/v25.0").reply_call(to(""), "hi", "r").url.endswith("/v25.0/me/messages")


def test_parts_are_measured_in_bytes_and_cut_between_characters(api: InstagramApi) -> None:
    writer = sender(api.url)
    parts = split("é😀" * 700, writer.longest, writer.unit)
    for part in parts:
        writer.check(made(writer.reply_call(to(), part, "r")))
    assert "".join(text for _, text in api.sent) == "é😀" * 700
    assert max(len(part.encode()) for part in parts) > 990
    with pytest.raises(GiveUp, match="1000"):
        writer.check(made(writer.reply_call(to(), "é" * 501, "r")))


def test_typing_is_shown_as_in_messenger(api: InstagramApi) -> None:
    call = sender(api.url).typing_call(to())
    assert call is not None
    assert made(call).status == 200
    assert api.signs == [(IGSID, "typing_on")]


def test_refusals_speak_of_instagram(api: InstagramApi) -> None:
    writer = sender(api.url, "expired")
    with pytest.raises(GiveUp, match=r"^Instagram answered 401: .*TURNTAKE_INSTAGRAM_ACCESS_TOKEN"):
        writer.check(made(writer.reply_call(to(), "hi", "r")))


def test_a_closed_window_is_final_and_says_so(api: InstagramApi) -> None:
    outside = refused(10, "(#10) This message is sent outside of allowed window.", error_subcode=2534022)
    with pytest.raises(GiveUp, match="more than 24 hours old"):
        sender(api.url).check(said(outside.body, 400))
