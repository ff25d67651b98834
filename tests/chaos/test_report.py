"""Whoever reads a broken promise sees the events that show it, and no others."""

import json
from pathlib import Path

from chaos.history import Fault, HandOver, History, Reply, Sending, Violation
from chaos.report import SHOWN, broken, keep, slice_of, summary
from chaos.run import Outcome


def history() -> History:
    return History(
        sendings=[
            Sending("a/1", 10.0, 10.1, "buffered", True),
            Sending("a/2", 20.0, 20.1, "buffered", True),
            Sending("b/1", 10.0, 10.1, "buffered", True),
        ],
        hand_overs=[
            HandOver(10.5, 1, "t1", 1, "a", ("a/1",), (1,), "x", 10.6, ("yes",)),
            HandOver(20.5, 2, "t2", 1, "a", ("a/2",), (2,), "y", 20.6, ("no",)),
        ],
        replies=[Reply(10.7, "t1", 0, "yes", "t1.0"), Reply(20.7, "t2", 0, "no", "t2.0")],
        faults=[Fault("cut", "network", 9.0, 9.5), Fault("kill worker", "work1", 15.0, 16.0)],
    )


def test_a_slice_holds_the_turn_its_messages_and_the_faults_of_that_time() -> None:
    lines = slice_of(history(), Violation("two answers", "a", "…", ("t1",)))
    assert [line.split(maxsplit=1)[1] for line in lines] == [
        "FAULT cut network for 0.500 s",
        "sent a/1",
        "a/1 was answered: buffered",
        "call 1, t1 attempt 1: a/1",
        "call 1, t1 attempt 1 ended with ('yes',)",
        "reply t1.0: 'yes'",
    ]


def test_only_the_first_violations_are_shown() -> None:
    many = [Violation("lost", "a", "a/1 was acknowledged and never handed over", ("a/1",))] * (SHOWN + 3)
    lines = list(broken(many, history()))
    assert lines[-1] == "  and 3 more"
    assert sum("lost:" in line for line in lines) == SHOWN


def test_the_summary_counts_messages_turns_and_faults() -> None:
    said = "\n".join(summary(Outcome("redis", 7, 12.0, history(), [], {"claims lost": 4}, 1)))
    for part in ("redis, seed 7, 12 s: 0 promises broken", "3 messages acknowledged of 3", "2 turns, 2 replies"):
        assert part in said
    assert "2 faults: 1 cut, 1 kill worker" in said
    assert "4 claims lost; 1 starts failed" in said
    assert "0 dead letters" in said


def test_the_history_is_kept(tmp_path: Path) -> None:
    keep(history(), tmp_path)
    events = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["Sending"] * 3 + ["HandOver"] * 2 + ["Reply"] * 2 + ["Fault"] * 2
    assert events[0]["message"] == "a/1"
