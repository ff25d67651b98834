"""Each line of the formula, with its reason."""

import ast
from pathlib import Path

import pytest

from turntake import rules as rules_package
from turntake.rules.deadline import REASONS, Deadline, after_activity, after_composing, after_message
from turntake.rules.rules import Rules

FIRST = 10_000
LATEST = FIRST + 30_000


@pytest.mark.parametrize(
    ("rules", "count", "previous_at", "now", "due_at", "reason"),
    [
        pytest.param(Rules(), 1, None, FIRST, FIRST + 1_000, "silence", id="first message"),
        pytest.param(Rules(), 2, 12_000, 14_999, 17_999, "typing", id="gap below typing inference"),
        pytest.param(Rules(), 2, 12_000, 15_000, 16_000, "silence", id="gap of exactly typing inference"),
        pytest.param(Rules(typing_inference_ms=0), 2, 12_000, 12_000, 13_000, "silence", id="no typing inference"),
        pytest.param(Rules(silence_ms=4_000), 2, 12_000, 12_001, 16_001, "silence", id="never less than silence"),
        pytest.param(Rules(silence_ms=0), 1, None, FIRST, FIRST, "silence", id="no silence"),
        pytest.param(Rules(window_ms=2_000), 1, None, FIRST, 12_000, "window", id="window"),
        pytest.param(Rules(window_ms=2_000), 5, 11_998, 11_999, 12_000, "window", id="window is never reset"),
        pytest.param(Rules(min_messages=2), 1, None, FIRST, LATEST, "waiting for more", id="too few"),
        pytest.param(Rules(min_messages=2), 2, 12_000, 16_000, 17_000, "silence", id="enough"),
        pytest.param(Rules(min_messages=2, window_ms=5), 1, None, FIRST, LATEST, "waiting for more", id="few, window"),
        pytest.param(Rules(), 2, 30_000, 39_500, LATEST, "max wait", id="max wait binds"),
        pytest.param(Rules(), 2, 30_000, 39_000, LATEST, "silence", id="max wait just not binding"),
        pytest.param(Rules(), 2, 30_000, 90_000, LATEST, "max wait", id="overdue stays overdue"),
        pytest.param(Rules(max_messages=3), 3, 12_000, 12_001, 12_001, "max messages", id="max messages"),
        pytest.param(Rules(max_messages=3), 4, 12_000, 12_001, 12_001, "max messages", id="above max messages"),
        pytest.param(Rules(max_messages=3), 2, 12_000, 12_001, 15_001, "typing", id="below max messages"),
        pytest.param(Rules(capacity=3), 3, 12_000, 12_001, 12_001, "capacity", id="capacity"),
        pytest.param(Rules(capacity=3, max_messages=3), 3, 12_000, 12_001, 12_001, "capacity", id="capacity first"),
        pytest.param(Rules(capacity=1, min_messages=5), 1, None, FIRST, FIRST, "capacity", id="capacity over minimum"),
        pytest.param(Rules(enabled=False), 1, None, FIRST, FIRST, "off switch", id="off switch"),
        pytest.param(Rules(enabled=False, capacity=1), 1, None, FIRST, FIRST, "off switch", id="off switch first"),
    ],
)
def test_after_message(rules: Rules, count: int, previous_at: int | None, now: int, due_at: int, reason: str) -> None:
    """A message sets the deadline anew, for a reason."""
    assert after_message(rules, count, FIRST, previous_at, now) == Deadline(due_at, reason)


SOON = Deadline(12_000, "silence")


@pytest.mark.parametrize(
    ("rules", "count", "due", "composing_ms", "now", "expected"),
    [
        pytest.param(Rules(), 1, SOON, 5_000, 11_000, Deadline(16_000, "activity"), id="pushed back"),
        pytest.param(Rules(), 1, SOON, 500, 11_000, SOON, id="never brought forward"),
        pytest.param(Rules(), 1, SOON, 1_000, 11_000, SOON, id="no change keeps the reason"),
        pytest.param(Rules(), 1, SOON, 60_000, 11_000, Deadline(LATEST, "max wait"), id="never past max wait"),
        pytest.param(
            Rules(), 1, SOON, LATEST - 11_000, 11_000, Deadline(LATEST, "activity"), id="up to max wait, not by it"
        ),
        pytest.param(
            Rules(), 1, Deadline(LATEST, "max wait"), 5_000, 39_000, Deadline(LATEST, "max wait"), id="at max"
        ),
        pytest.param(Rules(window_ms=2_000), 1, SOON, 5_000, 11_000, SOON, id="a window is never moved"),
        pytest.param(Rules(enabled=False), 1, SOON, 5_000, 11_000, SOON, id="switched off"),
        pytest.param(Rules(max_messages=2), 2, SOON, 5_000, 11_000, SOON, id="full by max messages"),
        pytest.param(Rules(capacity=2), 2, SOON, 5_000, 11_000, SOON, id="full by capacity"),
    ],
)
def test_after_activity(
    rules: Rules, count: int, due: Deadline, composing_ms: int, now: int, expected: Deadline
) -> None:
    """A sign of composing pushes back or does nothing."""
    assert after_activity(rules, count, FIRST, due, composing_ms, now) == expected


@pytest.mark.parametrize(
    ("due", "now", "expected"),
    [
        pytest.param(Deadline(20_000, "activity"), 10_500, SOON, id="back to what the messages say"),
        pytest.param(Deadline(20_000, "activity"), 15_000, Deadline(16_000, "silence"), id="after a last silence"),
        pytest.param(Deadline(20_000, "activity"), 19_500, Deadline(20_000, "activity"), id="never later than before"),
        pytest.param(SOON, 10_500, SOON, id="nothing to take back"),
    ],
)
def test_after_composing(due: Deadline, now: int, expected: Deadline) -> None:
    """The end of composing brings the deadline forward, at most to a silence from now."""
    assert after_composing(Rules(), due, SOON, now) == expected


def test_every_reason_has_a_sentence() -> None:
    """Each reason that the rules write down is in the table, and the table has no other."""
    written = set()
    for source in Path(rules_package.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Deadline":
                written |= {argument.value for argument in node.args[1:] if isinstance(argument, ast.Constant)}
    assert written == set(REASONS)
