"""An HTTP agent: each answer it may give, and what becomes of the turn."""

import asyncio
import base64
import logging
import socket

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from harness.agent_server import (
    Step,
    agent_server,
    answers,
    floods,
    never_answers,
    resets,
    trickles,
)
from harness.conversation import talking
from harness.turns import AT_ONCE, only_turn, say
from turntake import Away, ConfigurationError, GiveUp, RetryLater, Rules, TurnTake
from turntake.clock import DAY_MS
from turntake.deliver.http_agent import HttpSink, replies_in
from turntake.deliver.options import HttpAgentOptions
from turntake.deliver.signed_endpoint import SignedEndpoint
from turntake.errors import CallFailed
from turntake.instants import to_ms
from turntake.observe.observer import Observer
from turntake.observe.stream import TurnPutOff
from turntake.platforms.replies import ApiResponse
from turntake.rules.message import Attachment
from turntake.testing.clock import VirtualClock

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
NOW = to_ms("2026-11-15T09:30:00.250Z")
JSON = {"content-type": "application/json"}


async def test_it_is_sent_a_signed_event() -> None:
    """What arrives verifies with an independent library; one byte changed, and it does not."""
    async with (
        agent_server(answers(200, {"reply": "Hello Ada"})) as agent,
        talking(HttpSink(agent.url, secrets=SECRET)) as talk,
    ):
        await talk.say("Hey")
        record = await talk.outcome()
    (request,) = agent.requests
    event = Webhook(SECRET).verify(request.body, request.headers)
    assert request.headers["webhook-id"] == event["id"] == record.id
    assert event["data"]["text"] == "Hey"
    assert request.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert request.headers["turntake-attempt"] == "1"
    assert request.headers["user-agent"].startswith("turntake/")
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(request.body.replace(b"Hey", b"Hex"), request.headers)


@pytest.mark.parametrize(
    ("step", "replies"),
    [
        (answers(200, {"reply": "one"}), ("one",)),
        (answers(200, {"replies": ["one", "two"]}), ("one", "two")),
        (answers(200, "Grüße\n", content_type="text/plain; charset=utf-8"), ("Grüße",)),
        (answers(200, "Flask says <b>hi</b>", content_type="text/html; charset=utf-8"), ("Flask says <b>hi</b>",)),
        (answers(200, "*hi*", content_type="text/markdown"), ("*hi*",)),
        (answers(200), ()),
        (answers(204), ()),
        (answers(201, {"reply": "one", "model": "x"}), ("one",)),
    ],
)
async def test_it_answers(step: Step, replies: tuple[str, ...]) -> None:
    """Every accepted answer closes the turn with exactly these replies."""
    async with agent_server(step) as agent, talking(HttpSink(agent.url)) as talk:
        await talk.say("Hey")
        record = await talk.outcome()
    assert (record.status, record.turn and record.turn.progress.replies) == ("answered", replies)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (answers(400, "no such model"), "The agent answered 400: no such model"),
        (answers(401), "The agent answered 401."),
        (answers(404, "x" * 100_000), "The agent answered 404: " + "x" * 200),
        (answers(302, location="http://127.0.0.1:1/"), "redirects are refused, configure the final URL"),
        (answers(200, {"answer": "one"}), '{"reply": "…"}'),
        (answers(200, "<!DOCTYPE html><p>", content_type="text/html"), "a web page (text/html)"),
        (answers(200, "<html>", content_type="text/plain"), "a web page"),
        (answers(200, "{}", content_type="image/png"), "The agent answered with image/png"),
    ],
)
async def test_it_refuses(step: Step, error: str, caplog: pytest.LogCaptureFixture) -> None:
    """What no retry can mend goes to the dead letters at once, with words that help; the log has none of them."""
    caplog.set_level(logging.DEBUG)
    async with agent_server(step) as agent, talking(HttpSink(agent.url)) as talk:
        await talk.say("Hey")
        record = await talk.outcome()
        letter = await talk.letter()
    assert (record.status, letter.reason, letter.attempts, len(agent.requests)) == ("dead", "given up", 1, 1)
    assert error in letter.error
    assert "no such model" not in caplog.text


@pytest.mark.parametrize("step", [answers(500, "oops"), answers(502), resets, never_answers, trickles, floods])
async def test_it_fails_and_recovers(step: Step) -> None:
    """A failure that may pass is retried: the same id and the same bytes, but for the attempt."""
    async with (
        agent_server(step, answers(200, {"reply": "sorry"})) as agent,
        talking(HttpSink(agent.url, HttpAgentOptions(timeout_ms=500))) as talk,
    ):
        await talk.say("Hey")
        record = await talk.outcome()
    first, again = agent.requests[:2]
    assert (record.status, first.headers["webhook-id"], again.headers["webhook-id"]) == (
        "answered",
        record.id,
        record.id,
    )
    assert (first.headers["turntake-attempt"], again.headers["turntake-attempt"]) == ("1", "2")
    assert first.body.replace(b'"attempt":1,', b'"attempt":2,') == again.body


@pytest.mark.parametrize(
    ("step", "timeout_ms", "error"),
    [
        (answers(500, "oops"), 30_000, "CallFailed: The agent answered 500: oops"),
        (never_answers, 100, "CallFailed: The agent gave no whole answer within 100 ms."),
        (floods, 30_000, "CallFailed: The agent's answer is larger than 65536 bytes."),
    ],
)
async def test_it_fails_for_good(step: Step, timeout_ms: int, error: str) -> None:
    """After `max_attempts` failures the turn is a dead letter that tells the last one."""
    rules = Rules(silence_ms=0, typing_inference_ms=0, max_attempts=2)
    async with (
        agent_server(step) as agent,
        talking(HttpSink(agent.url, HttpAgentOptions(timeout_ms=timeout_ms)), rules=rules) as talk,
    ):
        await talk.say("Hey")
        record = await talk.outcome()
        letter = await talk.letter()
    assert (record.status, letter.reason, letter.error) == ("dead", "failed 2 times", error)
    assert len(agent.requests) == 2


@pytest.mark.parametrize("status", [429, 503])
async def test_asking_for_time_costs_no_attempt(status: int) -> None:
    """However often the agent asks, and even where one failure would be the last."""
    rules = Rules(silence_ms=0, typing_inference_ms=0, max_attempts=1)
    script = [answers(status)] * 4 + [answers(200, {"reply": "at last"})]
    async with agent_server(*script) as agent, talking(HttpSink(agent.url, retry_ms=1), rules=rules) as talk:
        await talk.say("Hey")
        record = await talk.outcome()
    assert record.turn is not None
    assert (record.status, record.turn.failures, len(agent.requests)) == ("answered", 0, 5)


async def test_it_says_how_long_to_wait() -> None:
    """Retry-After is honoured, and no failure is noted."""
    async with agent_server(answers(429, retry_after="7")) as agent, talking(HttpSink(agent.url)) as talk:
        await talk.say("Hey")
        event = await talk.until("retrying", "failed", "dead-lettered")
    assert isinstance(event, TurnPutOff)
    assert event.retry_after_ms == 7_000


@pytest.mark.parametrize(
    ("header", "wait_ms"),
    [
        (None, 5_000),
        ("120", 120_000),
        ("0", 500),
        ("Sun, 15 Nov 2026 09:30:10 GMT", 9_750),
        ("Sun, 15 Nov 2026 09:29:00 GMT", 500),
        ("soon", 5_000),
        ("-3", 5_000),
        ("²", 5_000),
    ],
)
async def test_retry_after(header: str | None, wait_ms: int) -> None:
    """Seconds or a date; nonsense counts as no word at all."""
    endpoint = SignedEndpoint("http://127.0.0.1/", "The agent", timeout_ms=1, clock=VirtualClock(NOW))
    error = endpoint.error_in(ApiResponse(429, {} if header is None else {"retry-after": header}))
    await endpoint.aclose()
    assert isinstance(error, RetryLater)
    assert error.after_ms == wait_ms


async def test_what_is_signed_carries_the_machines_time_and_not_the_stores() -> None:
    """The agent judges its age by its own clock."""
    clock = VirtualClock(NOW)
    clock.not_before(NOW + 7 * DAY_MS)
    async with agent_server(answers(200, {"reply": "hi"})) as agent:
        endpoint = SignedEndpoint(agent.url, "The agent", timeout_ms=5_000, clock=clock)
        await endpoint.post("turn_1", Attachment("image"))
        await endpoint.aclose()
        assert (await agent.request(1)).headers["webhook-timestamp"] == str(NOW // 1000)


async def test_it_completes_later() -> None:
    """After a 202 the turn stays open until the API completes it; completing again returns the first result."""
    async with (
        agent_server(answers(202)) as agent,
        talking(HttpSink(agent.url, HttpAgentOptions(complete_within_ms=60_000))) as talk,
    ):
        await talk.say("Hey")
        turn_id = (await agent.request(1)).event["id"]
        first = await talk.turns.complete(turn_id, ("done",))
        again = await talk.turns.complete(turn_id, ("again",))
    assert first is not None
    assert first.turn is not None
    assert (first.status, first.turn.progress.replies, first) == ("answered", ("done",), again)
    assert len(agent.requests) == 1


async def test_a_promise_not_kept_is_a_failure() -> None:
    """If nobody completes the turn in time it is handed over again."""
    async with (
        agent_server(answers(202), answers(200, {"reply": "here"})) as agent,
        talking(HttpSink(agent.url, HttpAgentOptions(complete_within_ms=1))) as talk,
    ):
        await talk.say("Hey")
        record = await talk.outcome()
    assert (record.status, len(agent.requests), agent.events[1]["data"]["attempt"]) == ("answered", 2, 2)


async def test_an_interruption_closes_the_request() -> None:
    """The agent notices that nobody waits for its answer any more, and gets both messages instead."""
    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy="interrupt")
    async with (
        agent_server(never_answers, answers(200, {"reply": "both"})) as agent,
        talking(HttpSink(agent.url), rules=rules) as talk,
    ):
        await talk.say("Hey")
        request = await agent.request(1)
        await talk.say("wait")
        await request.gone.wait()
        await talk.outcome()
    assert [event["data"]["text"] for event in agent.events] == ["Hey", "Hey\nwait"]


class Promise(Observer):
    """Whether the agent said that it would complete the turn later."""

    def __init__(self) -> None:
        self.is_made = asyncio.Event()

    def pending(self, at: int, claim: object, within_ms: int) -> None:
        self.is_made.set()


@pytest.mark.parametrize("is_pending", [False, True], ids=["at work", "said 202"])
async def test_an_interruption_is_told_to_the_agent(is_pending: bool) -> None:
    """At the address that was set for it, signed, with the turn; also if the agent was to complete the turn later."""
    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy="interrupt")
    first, promise = answers(202) if is_pending else never_answers, Promise()
    async with agent_server(answers(204)) as told, agent_server(first, answers(200, {"reply": "both"})) as agent:
        sink = HttpSink(agent.url, HttpAgentOptions(cancel_url=told.url), secrets=SECRET)
        async with talking(sink, rules=rules, observers=[promise]) as talk:
            await talk.say("Hey")
            await agent.request(1)
            if is_pending:
                await promise.is_made.wait()
            await talk.say("wait")
            await told.request(1)
            await talk.outcome()
    (event,) = told.events
    assert (event["type"], event["data"]["turnId"]) == ("messages.batch.interrupted", agent.events[0]["id"])
    assert "webhook-signature" in told.requests[0].headers


async def test_a_turn_that_was_completed_is_not_told_as_interrupted() -> None:
    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy="interrupt")
    promise = Promise()
    async with agent_server(answers(204)) as told, agent_server(answers(202), answers(204)) as agent:
        sink = HttpSink(agent.url, HttpAgentOptions(cancel_url=told.url))
        async with talking(sink, rules=rules, observers=[promise]) as talk:
            await talk.say("Hey")
            await promise.is_made.wait()
            await talk.turns.complete(agent.events[0]["id"], ["done"])
            await talk.say("wait")
            await talk.outcome()
            await talk.outcome()
    assert told.events == []


async def test_an_agent_that_cannot_be_told_harms_no_turn() -> None:
    rules = Rules(silence_ms=0, typing_inference_ms=0, on_busy="interrupt")
    script = never_answers, answers(200, {"reply": "both"})
    async with agent_server(answers(500)) as told, agent_server(*script) as agent:
        sink = HttpSink(agent.url, HttpAgentOptions(cancel_url=told.url))
        async with talking(sink, rules=rules) as talk:
            await talk.say("Hey")
            await agent.request(1)
            await talk.say("wait")
            await talk.outcome()
            await told.request(1)
    assert [event["data"]["text"] for event in agent.events] == ["Hey", "Hey\nwait"]


async def test_connections_are_used_again() -> None:
    """One turn after another travels over the same connection, and no cookie follows it."""
    async with agent_server(answers(200, set_cookie="session=ada")) as agent, talking(HttpSink(agent.url)) as talk:
        for text in ("one", "two", "three"):
            await talk.say(text)
            await talk.outcome()
    assert {request.connection for request in agent.requests} == {1}
    assert not any("cookie" in request.headers for request in agent.requests)


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL was configured; where it leads is not for other programs' settings to change."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with agent_server(answers(200, "direct")) as agent, talking(HttpSink(agent.url)) as talk:
        await talk.say("Hey")
        record = await talk.outcome()
    assert record.status == "answered"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/",
        "file:///etc/passwd",
        "http://",
        "http://ada:sesame@host/",
        "http://ada@host/",
        "http://h:99999/",
        "http://[::1",
    ],
)
def test_urls_that_cannot_be_called(url: str) -> None:
    """They are refused when configured, and the message does not repeat a password."""
    with pytest.raises(ConfigurationError) as refused:
        HttpSink(url)
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    ("headers", "body", "replies"),
    [
        (JSON, b'{"reply": null}', ()),
        (JSON, b'{"replies": null}', ()),
        (JSON, b'{"replies": []}', ()),
        (JSON, b'{"replies": ["a", "", " ", "b"]}', ("a", "b")),
        ({"content-type": "application/problem+json"}, b'{"reply": "a"}', ("a",)),
        ({}, b' {"reply": "a"}', ("a",)),
        ({}, b"plain", ("plain",)),
        ({"content-type": "text/plain; charset=latin-1"}, b"gr\xfc\xdfe", ("grüße",)),
        ({"content-type": "text/markdown"}, b"*a*", ("*a*",)),
        (JSON, b" \n", ()),
    ],
)
def test_accepted_shapes(headers: dict[str, str], body: bytes, replies: tuple[str, ...]) -> None:
    assert replies_in(ApiResponse(200, headers, body)) == replies


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (JSON, b"{"),
        (JSON, b"[" * 60_000),
        (JSON, b"{}"),
        (JSON, b'"text"'),
        (JSON, b'["a"]'),
        (JSON, b'{"reply": 7}'),
        (JSON, b'{"replies": "a"}'),
        (JSON, b'{"replies": ["a", 7]}'),
        (JSON, b'{"reply": "a", "replies": ["a"]}'),
        (JSON | {"content-encoding": "gzip"}, b'{"reply": "a"}'),
        ({"content-type": "text/plain"}, b"\xff"),
        ({"content-type": "text/plain; charset=klingon"}, b"a"),
        ({"content-type": "text/plain; charset=idna"}, b"xn--" + b"a" * 300),
        ({"content-type": "text/plain; charset=undefined"}, b"a"),
        ({"content-type": "text/plain; charset=\0"}, b"a"),
        ({"content-type": "image/png"}, b"a"),
    ],
)
def test_refused_shapes(headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(GiveUp):
        replies_in(ApiResponse(200, headers, body))


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [(502, {}, Away), (503, {}, Away), (504, {}, Away), (503, {"retry-after": "3"}, RetryLater), (500, {}, CallFailed)],
)
async def test_what_a_proxy_answers_for_an_agent_that_is_not_there_costs_no_attempt(
    status: int, headers: dict[str, str], kind: type[Exception]
) -> None:
    """One that says when to come again is believed; one that fails is there."""
    endpoint = SignedEndpoint("http://127.0.0.1/", "The agent", timeout_ms=1, clock=VirtualClock(NOW))
    error = endpoint.error_in(ApiResponse(status, headers))
    await endpoint.aclose()
    assert type(error) is kind


async def test_an_agent_that_refuses_connections_is_away() -> None:
    """As while it restarts. The turn waits, and the agent is asked once it is there."""
    clock = VirtualClock()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with TurnTake("memory://", rules=AT_ONCE, agent=HttpSink(f"http://127.0.0.1:{port}/"), clock=clock) as turns:
        async with turns.events.watch() as seen:
            await say(turns, "hello")
            await clock.advance(1)
            while not isinstance(await seen.get(), TurnPutOff):
                pass
        record = await only_turn(turns)
    assert record.turn is not None
    assert (record.status, record.turn.failures, record.turn.waits) == ("answering", 0, 1)
    assert record.turn.error.startswith("Away: The agent could not be reached")
