"""Rules from outside are checked; presets are rules like any other."""

import re
from typing import Any

import msgspec
import pytest

from turntake.rules.rules import PRESETS, Rules


def test_defaults_are_the_documented_ones() -> None:
    """A user who configures nothing gets these."""
    assert msgspec.to_builtins(Rules()) == {
        "enabled": True,
        "silence_ms": 1_000,
        "typing_inference_ms": 3_000,
        "max_wait_ms": 30_000,
        "min_messages": 1,
        "max_messages": 20,
        "capacity": 50,
        "max_turn_bytes": 262_144,
        "window_ms": 0,
        "activity_ms": 5_000,
        "ttl_ms": 3_600_000,
        "on_busy": "queue",
        "busy_text": "One moment, please: your last message is still being answered. Please write again after that.",
        "max_interrupts": 3,
        "on_stale": "send",
        "max_attempts": 3,
        "flush_words": (),
        "hold_words": (),
        "stop_words": (),
        "hold_word_ms": 15_000,
        "cut_text_ms": 5_000,
        "history_keep_ms": 0,
        "text_format": "lines",
        "priority": 0,
        "share": 100,
        "tenant_turns": 0,
        "messages_per_minute": 0,
        "bytes_per_minute": 0,
        "tenant_messages_per_minute": 0,
        "tenant_bytes_per_minute": 0,
        "limit_text": "Too many messages at once: your last one will not be answered. Please write again in a minute.",
    }


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_valid(name: str) -> None:
    """It passes the checks that a user's own rules pass."""
    assert msgspec.convert(msgspec.to_builtins(PRESETS[name]), Rules) == PRESETS[name]


@pytest.mark.parametrize(
    "given",
    [
        {"silence_ms": -1},
        {"silence_ms": 8 * 24 * 3_600_000},
        {"silence_ms": "1000"},
        {"silence_ms": True},
        {"max_messages": 0},
        {"min_messages": 0},
        {"capacity": 0},
        {"max_attempts": 0},
        {"max_interrupts": -1},
        {"on_busy": "panic"},
        {"enabled": 1},
        {"silense_ms": 1},
        {"min_messages": 3, "max_messages": 2},
    ],
    ids=repr,
)
def test_nonsense_is_refused(given: dict[str, object]) -> None:
    """Below zero, beyond a week, of the wrong type, misspelled or contradictory."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, Rules)


def test_zero_is_a_value() -> None:
    """No wait is a rule one can have, not a missing one."""
    assert msgspec.convert({"silence_ms": 0, "max_wait_ms": 0}, Rules) == Rules(silence_ms=0, max_wait_ms=0)


def test_a_minimum_above_the_maximum_is_refused_in_code_too() -> None:
    """The two could never both be kept."""
    with pytest.raises(ValueError, match="min_messages"):
        Rules(min_messages=3, max_messages=2)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"silence_ms": -5}, "silence_ms = -5: expected an integer of milliseconds from 0 to 604800000."),
        ({"silence_ms": "5"}, "silence_ms = '5': expected an integer of milliseconds"),
        ({"silence_ms": 0.5}, "silence_ms = 0.5: expected an integer"),
        ({"silence_ms": 5.0}, "silence_ms = 5.0: expected an integer"),
        ({"silence_ms": True}, "silence_ms = True: expected an integer"),
        ({"on_busy": "drop"}, 'on_busy = \'drop\': expected one of "queue", "interrupt"'),
        ({"enabled": 1}, "enabled = 1: expected true or false."),
        ({"max_attempts": 0}, "max_attempts = 0: expected an integer from 1 to 100000."),
        (
            {"silence_ms": 5_000, "max_wait_ms": 1_000},
            "silence_ms (5000) is above max_wait_ms (1000), which ends every",
        ),
        ({"silence_ms": 60_000}, "silence_ms (60000) is above max_wait_ms (30000)"),
        ({"window_ms": 2_000, "max_wait_ms": 1_000}, "window_ms (2000) is above max_wait_ms (1000)"),
    ],
    ids=repr,
)
def test_rules_written_in_code_are_checked_as_those_in_a_file(given: dict[str, Any], says: str) -> None:
    """msgspec alone would take them, and the first message would fail or be stored so that nobody can read it."""
    with pytest.raises(ValueError, match=re.escape(says)):
        Rules(**given)


def test_a_short_longest_wait_alone_is_enough() -> None:
    """Who sets only that need not know the default of the silence, which it cuts short."""
    assert Rules(max_wait_ms=500).silence_ms == 1_000
