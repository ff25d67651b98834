"""Refused callers: how often, and what the log says of them."""

import logging
from collections import Counter

import pytest

from harness.platforms.word_channel import WordChannel, body, said
from harness.servers import calling
from turntake import Rules, TurnTake
from turntake.accept import refusals
from turntake.accept.refusals import TRIES_PER_MINUTE, Refusals
from turntake.errors import Problem
from turntake.testing.clock import VirtualClock


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8:0:0:ffff::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("", "", True),
    ],
)
async def test_of_ipv6_a_whole_network_counts_as_one(first: str, second: str, is_same: bool) -> None:
    """Whoever has one address of it has all of them."""
    told = Refusals(VirtualClock())

    def status(address: str) -> int:
        return told.answer(Problem(401, "No."), (address, 1), "Refused", {}).status

    for _ in range(TRIES_PER_MINUTE):
        assert status(first) == 401
    assert status(first) == 429
    assert status(second) == (429 if is_same else 401)


async def test_only_so_many_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was refused longest ago is forgotten first."""
    monkeypatch.setattr(refusals, "ADDRESSES", 2)
    monkeypatch.setattr(refusals, "TRIES_PER_MINUTE", 1)
    told = refusals.Refusals(VirtualClock())
    addresses = [f"192.0.2.{number}" for number in (1, 2, 3, 2, 1)]
    statuses = [told.answer(Problem(401, "No."), (address, 1), "Refused", {}).status for address in addresses]
    assert statuses == [401, 401, 401, 429, 401]


async def test_guessing_keys_meets_a_limit_and_leaves_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever has a right key is served meanwhile: behind a proxy everybody has the same address."""
    clock = VirtualClock()
    turns = TurnTake("memory://", rules=Rules(silence_ms=20_000), role="accept", clock=clock)
    async with turns, calling(turns.asgi(api_keys=["a long and secret key"])) as client:
        statuses = Counter[int]()
        for number in range(200):
            response = await client.get("/v1/conversations", headers={"x-api-key": str(number)})
            statuses[response.status_code] += 1
        assert statuses == {401: TRIES_PER_MINUTE, 429: 200 - TRIES_PER_MINUTE}
        assert response.headers["retry-after"] == "1"
        right = {"x-api-key": "a long and secret key"}
        assert (await client.get("/v1/conversations", headers=right)).status_code == 200
        assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
        await clock.advance(1_000)
        assert (await client.get("/v1/conversations")).status_code == 401
        await clock.advance(60_000)
    (line, counted) = [record.__dict__ for record in caplog.records if record.levelno == logging.WARNING]
    assert (line["address"], counted["times"]) == ("127.0.0.1", 200)


async def test_forged_webhooks_meet_a_limit_and_leave_one_line(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    turns = TurnTake("memory://", rules=Rules(silence_ms=20_000), role="accept", clock=clock)
    channels = {("knock", ""): WordChannel({"word": "sesame"})}
    async with turns, calling(turns.asgi(channels=channels)) as client:
        forged = [
            await client.post("/webhooks/knock", content=body(said("hi")), headers={"x-word": "x"}) for _ in range(100)
        ]
        right = await client.post("/webhooks/knock", content=body(said("hi")), headers={"x-word": "sesame"})
    assert Counter(response.status_code for response in forged) == {401: TRIES_PER_MINUTE, 429: 100 - TRIES_PER_MINUTE}
    assert right.status_code == 200
    (line,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert (line.message, line.__dict__["channel"]) == ("A webhook was refused", "knock")
