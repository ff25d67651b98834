"""The checker of storms sees each fault that it is for."""

import pytest

from harness.storm_checker import Line, broken

SAID = [Line("said", "ada", ("a",)), Line("said", "ada", ("b",))]
BEGAN = Line("began", "ada", ("a",), 1)
AGAIN = Line("began", "ada", ("a", "b"), 2)


def test_a_log_without_faults() -> None:
    log = [SAID[0], BEGAN, SAID[1], AGAIN, Line("sent", "ada", ("a", "b"), 2), Line("rejected", "ada", ("c",))]
    assert broken(log, most_runs=2, answers=1) == []


def test_an_answer_that_leaves_out_what_was_there_is_named() -> None:
    sent, ended = Line("sent", "ada", ("a",), 1), Line("ended", "ada", ("a",), 1)
    second = [AGAIN, Line("ended", "ada", ("b",), 2), Line("sent", "ada", ("b",), 2)]
    too_late = [SAID[0], BEGAN, ended, SAID[1], sent, *second]
    assert broken(too_late, most_runs=1, leaves_nothing_out=True) == []
    in_time = [SAID[0], BEGAN, SAID[1], ended, sent, *second]
    assert broken(in_time, most_runs=1) == []
    assert broken(in_time, most_runs=1, leaves_nothing_out=True) == ["ada: run 1 left out b"]


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        ([*SAID, BEGAN, Line("sent", "ada", ("a",), 1)], "ada: never answered: b"),
        ([*SAID, AGAIN, *[Line("sent", "ada", ("a", "b"), 2)] * 2], "ada: answered twice: a, b"),
        ([SAID[0], AGAIN, Line("sent", "ada", ("a", "b"), 2)], "ada: answered though nobody was to answer it: b"),
        ([*SAID, AGAIN, Line("sent", "ada", ("b", "a"), 2)], "ada: out of order: b, a"),
        ([*SAID, BEGAN, AGAIN, Line("sent", "ada", ("a", "b"), 1)], "ada: run 1 answered after run 2 had begun"),
        (
            [*SAID, BEGAN, AGAIN, Line("began", "ada", ("a", "b"), 3), Line("sent", "ada", ("a", "b"), 3)],
            "ada: an answer took 3 runs, and 2 are allowed",
        ),
        (
            [*SAID, BEGAN, Line("sent", "ada", ("a",), 1), AGAIN, Line("sent", "ada", ("b",), 2)],
            "ada: 2 answers instead of 1",
        ),
    ],
)
def test_a_fault_is_named(log: list[Line], fault: str) -> None:
    assert fault in broken(log, most_runs=2, answers=1)
