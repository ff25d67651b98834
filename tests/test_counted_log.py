"""Warnings that strangers can cause: the log says so at once, and then once a minute."""

import logging

import pytest

from turntake.counted_log import EVERY_MS, KINDS, CountedLog
from turntake.testing.clock import VirtualClock


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int | None]]:
    return [(record.message, getattr(record, "times", None)) for record in caplog.records]


async def test_the_first_is_logged_and_the_rest_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    log = CountedLog(logging.getLogger("turntake"), clock)
    for _ in range(1_000):
        log.tell("Refused", {"action": "refuse", "address": "192.0.2.1"})
    log.tell("Refused", {"action": "refuse", "address": "192.0.2.2"})
    assert lines(caplog) == [("Refused", None), ("Refused", None)]
    await clock.advance(EVERY_MS)
    assert lines(caplog)[2:] == [("Refused", 999)]
    assert caplog.records[-1].__dict__["address"] == "192.0.2.1"


async def test_what_goes_on_has_one_line_a_minute_and_what_stopped_is_new_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    log = CountedLog(logging.getLogger("turntake"), clock)
    for _ in range(6 * 60):
        log.tell("Refused", {"action": "refuse"})
        await clock.advance(1_000)
    assert 6 <= len(lines(caplog)) <= 7
    await clock.advance(2 * EVERY_MS)
    before = len(lines(caplog))
    log.tell("Refused", {"action": "refuse"})
    assert lines(caplog)[before:] == [("Refused", None)]


async def test_ever_new_kinds_are_counted_as_one(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    log = CountedLog(logging.getLogger("turntake"), clock)
    for number in range(10 * KINDS):
        log.tell("Refused", {"action": "refuse", "address": str(number)})
    assert len(lines(caplog)) == KINDS + 1
    await clock.advance(EVERY_MS)
    assert lines(caplog)[KINDS + 1 :] == [("Refused", 9 * KINDS - 1)]
    await clock.advance(EVERY_MS)
    assert not log._more
