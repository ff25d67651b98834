"""The judge is judged: a good history passes, and each broken promise is seen."""

import pytest

from chaos.history import HandOver, History, Limits, Reply, violations

LIMITS = Limits(max_wait=1.0, lease=1.0, slack=2.0)


def good() -> History:
    return History(
        acknowledged={"a/1": 0.0, "a/2": 0.1, "a/3": 5.0},
        sent={"a/1", "a/2", "a/3", "a/4"},
        hand_overs=[
            HandOver(1.0, "t1", 1, "a", ("a/1", "a/2"), "x"),
            HandOver(2.0, "t1", 2, "a", ("a/1", "a/2"), "x"),
            HandOver(6.0, "t2", 1, "a", ("a/3",), "y"),
        ],
        replies=[Reply(2.1, "t1", 0, "yes"), Reply(2.2, "t1", 0, "yes"), Reply(6.1, "t2", 0, "no")],
        restarts=[1.5],
    )


def test_a_good_history_breaks_nothing() -> None:
    assert violations(good(), LIMITS) == []


@pytest.mark.parametrize(
    ("word", "call"),
    [
        ("phantom", HandOver(7.0, "t3", 1, "a", ("a/4", "b/9"), "z")),
        ("two turns", HandOver(7.0, "t3", 1, "a", ("a/3", "a/4"), "z")),
        ("twice", HandOver(7.0, "t3", 1, "a", ("a/4", "a/4"), "z")),
        ("order", HandOver(7.0, "t3", 1, "a", ("a/5",), "z")),
        ("changed", HandOver(7.0, "t2", 2, "a", ("a/3",), "other")),
        ("attempt", HandOver(7.0, "t2", 1, "a", ("a/3",), "y")),
        ("unanswered", HandOver(7.0, "t3", 1, "a", ("a/4",), "z")),
    ],
)
def test_a_bad_hand_over_is_seen(word: str, call: HandOver) -> None:
    history = good()
    history.hand_overs.append(call)
    assert any(word in line for line in violations(history, LIMITS))


def test_a_lost_message_is_seen() -> None:
    history = good()
    history.acknowledged["a/4"] = 6.0
    assert violations(history, LIMITS) == ["lost: a/4 was acknowledged and never handed over"]


def test_two_different_answers_are_seen() -> None:
    history = good()
    history.replies.append(Reply(9.0, "t1", 0, "no, the other way"))
    assert len(violations(history, LIMITS)) == 1


def test_lateness_is_seen() -> None:
    assert any("late" in line for line in violations(good(), Limits(0.1, 0.1, 0.1)))
