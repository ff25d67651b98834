"""What a caller hears when something went wrong, and what only the log hears."""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from turntake.errors import RateLimited, StoreUnavailable
from turntake.http.problem import Problems

SCOPE = {"type": "http", "path": "/v1/messages"}
REASON = "Redis did not do as asked (ConnectionError: Error 111 connecting to db.internal:6379)."


async def answered(error: BaseException, method: str = "POST") -> tuple[int, dict[bytes, bytes], dict[str, Any]]:
    """The status, the headers and the body after an app failed."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise error

    async def receive() -> Any:
        raise AssertionError("nobody reads the request")

    async def send(event: Any) -> None:
        sent.append(event)

    with suppress(asyncio.CancelledError):
        await Problems(app)({**SCOPE, "method": method}, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), msgspec.json.decode(sent[1]["body"])


async def test_a_store_that_is_away_is_the_same_for_every_caller(caplog: pytest.LogCaptureFixture) -> None:
    """Its host, its port and its library's words are for the log."""
    status, headers, body = await answered(StoreUnavailable(REASON))
    assert (status, headers[b"retry-after"]) == (503, b"1")
    assert (status, headers, body) == await answered(StoreUnavailable("The SQLite file cannot be written."))
    assert "send it again" in body["detail"]
    assert "send it again" not in (await answered(StoreUnavailable(REASON), "GET"))[2]["detail"], "nothing was sent"
    record = caplog.records[0]
    assert (record.levelname, record.getMessage()) == ("WARNING", "The store did not confirm a request")
    said = vars(record)
    assert (said["error"], said["reason"], said["path"]) == ("StoreUnavailable", REASON, "/v1/messages")


async def test_whoever_sends_too_much_is_told_when_to_come_again(caplog: pytest.LogCaptureFixture) -> None:
    """In whole seconds, and never too early. It is no mistake of ours, and fills no log."""
    status, headers, body = await answered(RateLimited("tenant", "tenant_messages_per_minute", 60, 1_001))
    assert (status, headers[b"retry-after"]) == (429, b"2")
    assert body["detail"] == (
        "This tenant sent more than tenant_messages_per_minute = 60 allows, so nothing of this was taken: "
        "send it again in 2 s."
    )
    assert not caplog.records


async def test_whoever_is_still_waited_for_when_the_server_stops_is_told_to_come_again() -> None:
    """A 500 would be taken for a mistake of ours, and some senders do not try again after one."""
    status, headers, body = await answered(asyncio.CancelledError())
    assert (status, headers[b"retry-after"]) == (503, b"1")
    assert "Send it again" in body["detail"]


async def test_a_server_that_stops_in_the_middle_of_an_answer_says_nothing_more() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise asyncio.CancelledError

    async def receive() -> Any:
        raise AssertionError("nobody reads the request")

    async def send(event: Any) -> None:
        raise RuntimeError("The answer has begun.")

    with pytest.raises(asyncio.CancelledError):
        await Problems(app)({**SCOPE, "method": "GET"}, receive, send)


async def test_words_that_are_not_ours_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """They may quote what a person wrote."""
    status, _, body = await answered(ValueError("hello, my name is Ann"))
    assert status == 500
    assert "Ann" not in str(body) + str([vars(record) for record in caplog.records])


def test_what_a_store_did_not_confirm_may_be_stored() -> None:
    """Only that nothing was acknowledged is certain, and that sending it again does no harm."""
    said = str(StoreUnavailable())
    assert "nothing was acknowledged" in said
    assert "send it again" in said
    assert "accepted" not in said
