"""Platforms call: who is believed, what is stored, and what they hear."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace
from starlette import types

from harness.platforms.word_channel import WordChannel, body, said
from harness.servers import talking
from turntake import ConversationKey, Rules, StoreUnavailable, TurnTake
from turntake.buffer.memory import MemoryStore
from turntake.buffer.open import open_store
from turntake.clock import DAY_MS, SystemClock
from turntake.observe.observer import Ignored, Observer
from turntake.platforms.channel import Channel, ChatEvent, Delivery, Needs, Request, WebhookAnswer
from turntake.platforms.discord.webhooks import Discord
from turntake.platforms.generic.webhooks import Generic
from turntake.platforms.replies import Recipient
from turntake.platforms.slack.webhooks import Slack
from turntake.platforms.telegram.webhooks import Telegram
from turntake.platforms.twilio.webhooks import Twilio
from turntake.platforms.whatsapp.webhooks import WhatsApp
from turntake.rules.message import Message
from turntake.rules.records import Append, Appended
from turntake.testing.clock import VirtualClock

PATIENT = Rules(silence_ms=60_000, typing_inference_ms=60_000, max_wait_ms=600_000)
WORD = {"x-word": "sesame"}
CHANNELS = {("knock", ""): WordChannel({"word": "sesame"}), ("knock", "sales"): WordChannel({"word": "open"})}


@pytest.fixture
def turns() -> TurnTake:
    return TurnTake("memory://", rules=PATIENT, role="accept")


@pytest.fixture
def client(turns: TurnTake) -> Iterator[httpx2.Client]:
    with talking(turns, channels=CHANNELS) as client:
        yield client


def post(client: httpx2.Client, *events: ChatEvent, path: str = "/webhooks/knock", **headers: str) -> httpx2.Response:
    return client.post(path, content=body(*events), headers=headers or WORD)


def waiting(client: httpx2.Client) -> dict[str, list[str]]:
    found = client.get("/v1/conversations").json()["conversations"]
    details = [client.get(f"/v1/conversations/{each['conversationKey']}").json() for each in found]
    return {detail["conversationKey"]: [m["text"] for m in detail["messages"]] for detail in details}


def test_a_platforms_message_is_buffered(client: httpx2.Client) -> None:
    response = post(client, said("hi"), said("are you open?"), said("hallo", conversation="ben", sender="ben"))
    assert response.status_code == 200
    assert waiting(client) == {
        "default:knock:us:ann": ["hi", "are you open?"],
        "default:knock:us:ben": ["hallo"],
    }


def test_a_redelivery_changes_nothing(client: httpx2.Client) -> None:
    for _ in range(3):
        assert post(client, said("hi")).status_code == 200
    assert waiting(client) == {"default:knock:us:ann": ["hi"]}


def test_a_message_and_a_button_press_with_the_same_id_are_both_kept(client: httpx2.Client) -> None:
    post(client, said("hi", id="m1"), said("Go", kind="postback", id="m1"))
    assert waiting(client) == {"default:knock:us:ann": ["hi", "Go"]}


def test_a_forged_call_is_refused_and_nothing_of_it_is_kept(
    client: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "turntake"):
        response = post(client, said("secret words"), **{"x-word": "guess"})
    assert response.status_code == 401
    assert response.json()["detail"] == "This is not the word."
    assert waiting(client) == {}
    assert "secret words" not in caplog.text
    assert [record.message for record in caplog.records if record.name == "turntake"] == ["A webhook was refused"]


def test_a_signatures_age_is_judged_by_the_machines_clock_and_not_by_the_stores(tmp_path: Path) -> None:
    """A store that once saw a time seven days ahead goes on from there, after every restart; Slack signs by the time it
    is, and takes no call for fresh that is older than five minutes."""
    ahead = VirtualClock(SystemClock().wall() + 7 * DAY_MS)
    url, slack = f"sqlite:///{tmp_path / 't.db'}", Slack({"signing_secret": "s" * 32})

    async def see_that_time() -> None:
        async with open_store(url, ahead) as store:
            await store.append([Append(ConversationKey.of("ann"), Message("m1"), PATIENT)])

    asyncio.run(see_that_time())
    turns = TurnTake(url, rules=PATIENT, role="accept")
    with talking(turns, channels={("slack", ""): slack}) as client:
        assert turns.clock.now() >= ahead.now()
        for at, status in ((turns.clock.wall(), 200), (turns.clock.now(), 401)):
            sample = slack.sample("hi", sender="U1", id="1.2", url="/webhooks/slack", now=at)
            response = client.post("/webhooks/slack", content=sample.body, headers=dict(sample.headers))
            assert response.status_code == status


def test_what_cannot_be_read_is_a_400(client: httpx2.Client) -> None:
    response = client.post("/webhooks/knock", content=b"{", headers=WORD)
    assert (response.status_code, response.json()["detail"]) == (400, "These are no events.")


def test_what_is_no_message_is_acknowledged_and_ignored(client: httpx2.Client) -> None:
    kinds = ("status", "echo", "reaction", "system", "unsupported", "something new")
    assert post(client, *(said("no", kind=kind) for kind in kinds)).status_code == 200
    assert waiting(client) == {}


def test_what_a_platform_sends_blank_is_ignored(client: httpx2.Client) -> None:
    assert post(client, said(" \u200b ", id="blank")).status_code == 200
    assert waiting(client) == {}


def test_an_event_without_a_conversation_is_acknowledged(client: httpx2.Client) -> None:
    """A refusal would only have the platform send it again, for days."""
    assert post(client, said("lost", conversation=""), said("hi")).status_code == 200
    assert post(client, said("long", conversation="x" * 300)).status_code == 200
    assert waiting(client) == {"default:knock:us:ann": ["hi"]}


def test_an_unknown_channel_is_a_404_that_names_nobody(client: httpx2.Client) -> None:
    """Accounts are named after customers; strangers need not know them."""
    response = client.post("/webhooks/nobody", content=b"")
    assert response.status_code == 404
    assert "knock" not in response.text
    assert "sales" not in response.text


def test_each_account_has_its_own_secret_and_conversations(client: httpx2.Client) -> None:
    assert post(client, said("hi"), path="/webhooks/knock/sales").status_code == 401
    assert post(client, said("hi"), path="/webhooks/knock/sales", **{"x-word": "open"}).status_code == 200
    post(client, said("hi"))
    post(client, said("hi", account=""))
    assert set(waiting(client)) == {
        "default:knock:sales~2Fus:ann",
        "default:knock:us:ann",
        "default:knock:default:ann",
    }


def test_no_name_at_a_platform_leads_into_another_account_of_ours(client: httpx2.Client) -> None:
    """Whoever holds the secret of one account may name ours as they like, and still speaks only there."""
    sales = {"x-word": "open"}
    post(client, said("mine"), path="/webhooks/knock/sales", **sales)
    post(client, said("nested", account="us/x"), path="/webhooks/knock/sales", **sales)
    post(client, said("not yours", account="sales/us"), said("nor this", account="/sales/us"))
    assert sorted(waiting(client).values()) == [["mine"], ["nested"], ["nor this"], ["not yours"]]


def test_an_id_of_any_length_is_kept_in_a_length_that_every_store_takes(client: httpx2.Client) -> None:
    long = "x" * 5_000
    for _ in range(2):
        post(client, said("helo", id=f"{long}1"), said("other", id=f"{long}2"))
    assert waiting(client) == {"default:knock:us:ann": ["helo", "other"]}
    post(client, said("hello", kind="edit", target=f"{long}1", id="e1"), said("", kind="delete", target=f"{long}2"))
    detail = client.get("/v1/conversations/default:knock:us:ann").json()
    assert [message["text"] for message in detail["messages"]] == ["hello"]
    assert all(len(message["id"]) <= 1_024 for message in detail["messages"])


def test_a_refusal_names_the_variables_of_the_account(turns: TurnTake) -> None:
    channels = {("whatsapp", account): WhatsApp({}) for account in ("", "support-eu")}
    with talking(turns, channels=channels) as client:
        main, named = (client.post(f"/webhooks/whatsapp{end}").json()["detail"] for end in ("", "/support-eu"))
    assert "TURNTAKE_WHATSAPP_APP_SECRET" in main
    assert "TURNTAKE_WHATSAPP_SUPPORT_EU_APP_SECRET" in named


def test_in_a_group_each_person_has_a_buffer(client: httpx2.Client) -> None:
    ann, ben = (
        said("hi", conversation="team", is_group=True),
        said("ho", conversation="team", sender="ben", is_group=True),
    )
    post(client, ann, ben)
    assert waiting(client) == {"default:knock:us:team:@ann": ["hi"], "default:knock:us:team:@ben": ["ho"]}


def test_a_group_shares_one_buffer_where_that_is_set(turns: TurnTake) -> None:
    with talking(turns, channels=CHANNELS, groups="group") as client:
        post(client, said("hi", is_group=True), said("ho", is_group=True, sender="ben"))
        assert waiting(client) == {"default:knock:us:ann": ["hi", "ho"]}


def test_a_thread_is_a_conversation_of_its_own(client: httpx2.Client) -> None:
    post(client, said("hi"), said("there", thread="17.5"), said("ho", thread="17.5", is_group=True))
    assert set(waiting(client)) == {
        "default:knock:us:ann",
        "default:knock:us:ann:17.5",
        "default:knock:us:ann:17.5@ann",
    }


def test_typing_pushes_the_deadline_back_and_creates_nothing(client: httpx2.Client) -> None:
    post(client, said("", kind="typing", ttl_ms=90_000, id=""))
    assert waiting(client) == {}
    post(client, said("hi"), said("", kind="typing", ttl_ms=90_000, id=""))
    (conversation,) = client.get("/v1/conversations").json()["conversations"]
    assert conversation["reason"] == "activity"


def test_an_edit_changes_what_waits_and_a_deletion_takes_it_away(client: httpx2.Client) -> None:
    post(client, said("helo", id="1"), said("wrong", id="2"))
    post(client, said("hello", kind="edit", target="1", id="e1"), said("", kind="delete", target="2", id="d1"))
    assert waiting(client) == {"default:knock:us:ann": ["hello"]}


def test_a_change_in_front_of_what_it_changes_still_changes_it(client: httpx2.Client) -> None:
    """Platforms promise no order inside a batch."""
    post(client, said("hello", kind="edit", target="1", id="e1"), said("helo", id="1"))
    assert waiting(client) == {"default:knock:us:ann": ["hello"]}


def test_a_message_edited_twice_is_changed_twice(client: httpx2.Client) -> None:
    """Some platforms give an edit no id but that of the message."""
    post(client, said("one", id="1"))
    for text in ("two", "three", "two"):
        post(client, said(text, kind="edit", target="1", id="1", sent_at=len(text)))
    assert waiting(client) == {"default:knock:us:ann": ["three"]}


def test_a_time_outside_the_calendar_is_left_out(client: httpx2.Client) -> None:
    assert post(client, said("hi", sent_at=10**17), said("ho", sent_at=-5)).status_code == 200
    assert waiting(client) == {"default:knock:us:ann": ["hi", "ho"]}


def test_lone_surrogates_are_replaced(client: httpx2.Client) -> None:
    raw = rb'[{"kind":"message","conversation":"ann","id":"1","text":"a\ud83d"}]'
    assert client.post("/webhooks/knock", content=raw, headers=WORD).status_code in (200, 400)


def test_the_url_is_the_one_that_the_platform_called(turns: TurnTake) -> None:
    with talking(turns, channels=CHANNELS, public_url="https://bot.example/hooks/") as client:
        assert post(client, path="/webhooks/knock?a=1&b=%20").text == (
            "https://bot.example/hooks/webhooks/knock?a=1&b=%20"
        )
    with talking(turns, channels=CHANNELS) as client:
        response = post(client, **WORD, host="tunnel.example")
        assert response.text == "http://tunnel.example/webhooks/knock"
        assert response.headers["content-type"] == "text/x-url"


class Silent(WordChannel):
    def read(self, request: Request) -> Delivery:
        return replace(super().read(request), answer=WebhookAnswer(status=204))


def test_an_answer_without_content_says_nothing_of_its_length(turns: TurnTake) -> None:
    """HTTP forbids it with 204, and some proxies mind."""
    with talking(turns, channels={("knock", ""): Silent({"word": "sesame"})}) as client:
        response = post(client, said("hi"))
    assert (response.status_code, response.headers.keys() & {"content-length", "transfer-encoding"}) == (204, set())


def test_a_head_request_stores_nothing(client: httpx2.Client) -> None:
    assert client.request("HEAD", "/webhooks/knock", headers=WORD).status_code == 405


def test_an_account_id_with_a_slash_is_not_taken_for_a_configured_account(client: httpx2.Client) -> None:
    post(client, said("main", account="sales/us"))
    post(client, said("sales", account="us"), path="/webhooks/knock/sales", **{"x-word": "open"})
    keys = sorted(waiting(client))
    assert keys == ["default:knock:sales~2Fus:ann", "default:knock:~2Fsales~2Fus:ann"]
    whom = [Recipient(ConversationKey.parse(key), "turn", ()).account for key in keys]
    assert whom == ["us", "sales/us"]


def test_without_a_key_only_webhooks_pass_a_proxy(client: httpx2.Client) -> None:
    """A proxy may call itself 127.0.0.1, whoever stands behind it."""
    through = {"via": "1.1 proxy"}
    assert client.get("/v1/conversations", headers=through | {"x-api-key": ""}).status_code == 401
    assert post(client, said("hi"), **WORD, **through).status_code == 200


def test_a_webhook_needs_no_api_key_and_is_not_believed_for_one(turns: TurnTake) -> None:
    with talking(turns, channels=CHANNELS, api_keys=["key"]) as client:
        assert client.get("/v1/conversations").status_code == 401
        assert post(client, said("hi")).status_code == 200
        assert post(client, said("hi"), authorization="Bearer key").status_code == 401


def test_a_long_webhook_is_taken_and_a_longer_one_is_not(turns: TurnTake) -> None:
    with talking(turns, channels=CHANNELS) as client:
        assert post(client, *(said("x" * 2_000, id=str(n)) for n in range(1_000))).status_code == 200
    with talking(turns, channels=CHANNELS, max_webhook_bytes=2_000) as client:
        assert post(client, said("x" * 2_000)).status_code == 413


def test_a_process_that_only_works_sends_platforms_elsewhere() -> None:
    async def answer(turn: object) -> None: ...

    with talking(TurnTake("memory://", role="work", agent=answer), channels=CHANNELS) as client:
        assert post(client, said("hi")).status_code == 503


class Away(MemoryStore):
    """A store that takes nothing at the moment."""

    async def append(self, arrivals: object) -> list[Appended]:
        raise StoreUnavailable


def test_what_cannot_be_stored_is_a_503_and_comes_again() -> None:
    away = Away(SystemClock())
    with talking(TurnTake(away, rules=PATIENT, role="accept"), channels=CHANNELS) as client:
        response = post(client, said("hi"), said("ho"))
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert waiting(client) == {}


class Signing(WordChannel):
    """Its signature covers the address."""

    needs = Needs(signed_url=True)


@pytest.mark.parametrize("public_url", ["", "https://bot.example"])
def test_an_address_that_is_signed_is_never_taken_from_the_caller(turns: TurnTake, public_url: str) -> None:
    """A request that the platform signed for another service would be good here, by the name of that service."""
    channels = {("knock", ""): Signing({"word": "sesame"})}
    with talking(turns, channels=channels, public_url=public_url) as client:
        elsewhere = post(client, said("hi"), **WORD, host="other-service.example")
        here = post(client, said("ho"), **WORD, host="127.0.0.1:8080")
        if public_url:
            assert (elsewhere.status_code, here.status_code) == (200, 200)
            assert here.text == "https://bot.example/webhooks/knock"
        else:
            assert (elsewhere.status_code, here.status_code) == (401, 200)
            assert "set TURNTAKE_PUBLIC_URL" in elsewhere.json()["detail"]


class Posting(WordChannel):
    takes_get = False


def test_a_platform_that_only_posts_is_not_heard_by_get(turns: TurnTake) -> None:
    """A GET changes nothing anywhere, so whatever sends one may repeat it or be made to send it."""
    with talking(turns, channels=CHANNELS | {("posting", ""): Posting({"word": "sesame"})}) as client:
        for path, status in (("/webhooks/posting", 405), ("/webhooks/knock", 200)):
            answer = client.request("GET", path, content=body(said("hi")), headers=WORD)
            assert answer.status_code == status
        assert client.request("GET", "/webhooks/posting", headers=WORD).headers["allow"] == "POST"
        assert waiting(client) == {"default:knock:us:ann": ["hi"]}


def test_a_message_that_its_platform_dates_too_far_back_is_ignored_and_counted(
    turns: TurnTake, caplog: pytest.LogCaptureFixture
) -> None:
    """By then its id may be forgotten, and whoever kept the webhook could have it answered again."""
    noted = Noted()
    turns.observers.add(noted)
    now = SystemClock().now()
    old, recent = said("old", sent_at=now - 9 * DAY_MS), said("recent", sent_at=now - 7 * DAY_MS)
    with talking(turns, channels=CHANNELS) as client, caplog.at_level(logging.WARNING, "turntake"):
        assert post(client, old, recent, said("undated"), said("old too", sent_at=1)).status_code == 200
        assert waiting(client) == {"default:knock:us:ann": ["recent", "undated"]}
    assert [vars(record)["messages"] for record in caplog.records if "too far back" in record.message] == [2]
    assert noted.ignored_reasons == ["too old", "too old"]
    with talking(turns, channels=CHANNELS, oldest_ms=0) as client:
        post(client, old)
        assert waiting(client) == {"default:knock:us:ann": ["old"]}


class Noted(Observer):
    def __init__(self) -> None:
        self.ignored_reasons: list[str] = []

    def ignored(self, at: int, key: ConversationKey, message: Message, reason: Ignored) -> None:
        self.ignored_reasons.append(reason)


class Signed(WordChannel):
    """One whose platform sends its word with every call."""

    signed_by = frozenset({"x-word"})
    takes_get = False


@pytest.mark.parametrize(
    ("channel", "path", "status"),
    [
        (Signed({"word": "sesame"}), "/webhooks/knock", 401),
        (Signed({}), "/webhooks/knock", 401),
        (WordChannel({}), "/webhooks/knock", 401),
        (Signed({"word": "sesame"}), "/webhooks/nobody", 404),
    ],
    ids=["no signature", "no secret and no signature", "no secret", "no channel"],
)
async def test_what_needs_no_body_to_be_refused_is_refused_before_it_is_read(
    turns: TurnTake, channel: WordChannel, path: str, status: int
) -> None:
    """Else strangers could fill the memory with megabytes that are then thrown away."""
    sent: list[types.Message] = []

    async def receive() -> types.Message:
        raise AssertionError("the body is asked for")

    async def send(message: types.Message) -> None:
        sent.append(message)

    headers = [(b"host", b"bot.example"), (b"content-length", b"3000000")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "scheme": "https", "headers": headers}
    async with turns:
        await turns.asgi(channels={("knock", ""): channel})(scope, receive, send)
    assert sent[0]["status"] == status


def test_a_platform_that_never_calls_by_get_is_not_believed_by_get(turns: TurnTake) -> None:
    """Whoever can make a browser follow a link must not be able to send a webhook."""
    with talking(turns, channels={("knock", ""): Signed({"word": "sesame"})}) as client:
        response = client.request("GET", "/webhooks/knock", content=body(said("hi")), headers=WORD)
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
        assert waiting(client) == {}


@pytest.mark.parametrize(
    ("kind", "takes_get"),
    [(WhatsApp, True), (Twilio, True), (Slack, False), (Telegram, False), (Generic, False), (Discord, False)],
)
def test_only_platforms_that_shake_hands_or_send_by_get_are_answered(kind: type[Channel], takes_get: bool) -> None:
    assert kind.takes_get is takes_get
    assert kind.signed_by
