"""A store that is away: the log says so once a minute, and that it is over."""

import logging

import pytest

from turntake.claim.outage import Outage
from turntake.errors import StoreUnavailable
from turntake.testing.clock import VirtualClock


async def test_an_outage_is_told_at_once_then_every_minute_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    outage = Outage(clock)
    with caplog.at_level(logging.WARNING, "turntake"):
        outage.succeeded()
        for _ in range(241):  # two minutes, asked twice a second
            outage.failed(StoreUnavailable("no route to the host"))
            clock.stall(500)
        outage.succeeded()
        outage.succeeded()
        outage.failed(ValueError("Ada's card is 4711"))
    assert [(record.message, vars(record).get("for_ms")) for record in caplog.records] == [
        ("Nothing could be claimed", 0),
        ("Nothing could be claimed", 60_000),
        ("Nothing could be claimed", 120_000),
        ("Turns can be claimed again", 120_500),
        ("Nothing could be claimed", 0),
    ]
    assert vars(caplog.records[0])["reason"] == "no route to the host"
    assert "4711" not in str([vars(record) for record in caplog.records])
