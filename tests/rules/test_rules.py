"""Rules from outside are checked; presets are rules like any other."""

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
        "window_ms": 0,
        "activity_ms": 5_000,
        "ttl_ms": 3_600_000,
        "on_busy": "queue",
        "max_interrupts": 3,
        "max_attempts": 3,
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
