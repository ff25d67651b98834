"""The judge is judged: a good history passes, and each broken promise is seen, by its own name and no other's."""

from dataclasses import replace
from math import inf

import pytest

from chaos.history import DeadLetter, Fault, HandOver, History, Limits, Reply, Sending
from chaos.promises import overlaps, violations
from chaos.punctuality import late, latenesses
from chaos.seen import Seen

LIMITS = Limits(silence=0.5, typing=0.8, max_wait=3.0, max_messages=4, lease=1.0, slack=2.0, longest=30.0)
CALM = 100.0


def sent(message: str, at: float, status: str = "buffered") -> Sending:
    """One that was answered a moment later."""
    return Sending(message, at, at + 0.01, status, is_acknowledged=status in ("buffered", "duplicate"))


def call(number: int, at: float, turn: str, attempt: int, *messages: str, seqs: tuple[int, ...] = ()) -> HandOver:
    """It took the agent a tenth of a second to answer."""
    conversation = messages[0].partition("/")[0]
    given = seqs or tuple(int(message.partition("/")[2]) for message in messages)
    answer = (f"answer {number}, part 1", f"answer {number}, part 2")
    return HandOver(at, number, turn, attempt, conversation, messages, given, "bytes", at + 0.1, answer)


def replies(number: int, at: float, turn: str) -> list[Reply]:
    return [
        Reply(at + part / 100, turn, part, f"answer {number}, part {part + 1}", f"{turn}.{part}") for part in (0, 1)
    ]


def good() -> History:
    """A crash soon after 11: turn t1 is handed over again. The second half, from `CALM` on, nothing disturbs."""
    return History(
        sendings=[
            sent("a/1", 10.0),
            sent("a/2", 10.1),
            sent("a/2", 10.2, "duplicate"),
            Sending("a/3", 10.3, 13.3, "ReadTimeout"),
            sent("a/4", CALM),
            sent("a/5", CALM + 0.3),
        ],
        hand_overs=[
            call(1, 11.2, "t1", 1, "a/1", "a/2", "a/3"),
            call(2, 13.0, "t1", 2, "a/1", "a/2", "a/3"),
            call(3, CALM + 1.2, "t2", 1, "a/4", "a/5"),
        ],
        replies=[*replies(2, 13.2, "t1"), *replies(2, 13.4, "t1"), *replies(3, CALM + 1.4, "t2")],
        faults=[Fault("kill worker", "work1", 11.1, 11.8)],
    )


def promises(history: History) -> set[str]:
    return {violation.promise for violation in violations(history, LIMITS)}


def test_a_good_history_breaks_nothing() -> None:
    assert violations(good(), LIMITS) == []


def test_a_lost_message_is_seen() -> None:
    history = good()
    history.sendings.append(sent("a/6", CALM + 9))
    assert promises(history) == {"lost"}


def test_a_message_that_nobody_acknowledged_may_be_lost() -> None:
    history = good()
    history.sendings.append(sent("a/6", CALM + 9, "503"))
    assert promises(history) == set()


def test_a_message_in_two_turns_is_seen() -> None:
    history = good()
    history.hand_overs.append(call(4, CALM + 5, "t3", 1, "a/5", seqs=(6,)))
    history.replies += replies(4, CALM + 5.2, "t3")
    assert "two turns" in promises(history)


def test_a_message_twice_in_one_turn_is_seen() -> None:
    history = good()
    history.hand_overs[2] = call(3, CALM + 1.2, "t2", 1, "a/4", "a/5", "a/5", seqs=(4, 5, 6))
    assert "twice in one turn" in promises(history)


def test_a_message_that_nobody_acknowledged_comes_at_most_once() -> None:
    history = good()
    history.hand_overs.append(call(4, CALM + 5, "t3", 1, "a/3", seqs=(6,)))
    history.replies += replies(4, CALM + 5.2, "t3")
    assert promises(history) == {"two turns"}


def test_messages_out_of_order_in_a_turn_are_seen() -> None:
    history = good()
    history.hand_overs[2] = call(3, CALM + 1.2, "t2", 1, "a/5", "a/4", seqs=(4, 5))
    assert promises(history) == {"order"}


def test_a_turn_before_an_earlier_one_is_seen() -> None:
    history = good()
    history.hand_overs = [history.hand_overs[2], *history.hand_overs[:2]]
    assert {"order", "numbers"} <= promises(history)


def test_one_that_was_given_up_may_come_late() -> None:
    history = good()
    history.hand_overs[:2] = [call(n, at, "t1", n, "a/1", "a/2", seqs=(1, 2)) for n, at in ((1, 11.2), (2, 13.0))]
    history.hand_overs[2] = call(3, CALM + 1.2, "t2", 1, "a/4", "a/5", "a/3", seqs=(3, 4, 5))
    assert promises(history) == set()


@pytest.mark.parametrize("seqs", [(5, 6), (3, 4), (4, 6), (5, 4)])
def test_a_hole_in_the_numbers_is_seen(seqs: tuple[int, ...]) -> None:
    history = good()
    history.hand_overs[2] = call(3, CALM + 1.2, "t2", 1, "a/4", "a/5", seqs=seqs)
    assert promises(history) == {"numbers"}


def test_two_handlers_at_once_are_seen() -> None:
    history = good()
    history.hand_overs.append(replace(call(4, CALM + 1.25, "t2", 2, "a/4", "a/5"), answer=()))
    assert promises(history) == {"overlap"}


def test_after_a_lost_lease_they_are_only_counted() -> None:
    history = good()
    history.hand_overs[0].ended_at = 13.05
    assert promises(history) == set()
    assert len(overlaps(Seen(history, LIMITS))) == 1


def test_answers_of_two_attempts_are_seen() -> None:
    """Whoever was taken over from sends its second reply after all."""
    history = good()
    history.replies[1:2] = [replace(replies(1, 13.2, "t1")[1], at=13.21)]
    history.replies[2:4] = []
    assert {"two answers"} <= promises(history)


def test_other_bytes_are_seen() -> None:
    history = good()
    history.hand_overs[1].digest = "other bytes"
    assert promises(history) == {"changed"}


def test_an_attempt_number_used_twice_is_seen() -> None:
    history = good()
    history.hand_overs[1].attempt = 1
    assert promises(history) == {"attempt"}


def test_attempts_that_count_down_are_seen() -> None:
    history = good()
    history.hand_overs[2].attempt = 2
    history.hand_overs.append(call(4, CALM + 1.5, "t2", 1, "a/4", "a/5"))
    assert promises(history) == {"attempt"}


def test_one_who_was_paused_may_call_late() -> None:
    history = good()
    history.hand_overs[0].attempt, history.hand_overs[1].attempt = 2, 1
    assert promises(history) == set()


def test_a_message_that_nobody_sent_is_seen() -> None:
    history = good()
    history.hand_overs[2] = call(3, CALM + 1.2, "t2", 1, "a/4", "a/5", "a/6")
    assert promises(history) == {"phantom"}


def test_a_message_of_somebody_else_is_seen() -> None:
    history = good()
    history.sendings.append(sent("b/1", CALM + 0.4))
    history.hand_overs[2] = call(3, CALM + 1.2, "t2", 1, "a/4", "a/5", "b/1", seqs=(4, 5, 6))
    assert "phantom" in promises(history)


@pytest.mark.parametrize("part", [0, 2])
def test_a_reply_that_nobody_gave_is_seen(part: int) -> None:
    history = good()
    history.replies.append(Reply(CALM + 1.5, "t2", 2, f"answer 3, part {part}", "t2.2"))
    assert promises(history) == {"phantom reply"}


def test_a_message_taken_twice_is_seen() -> None:
    history = good()
    history.sendings.append(sent("a/4", CALM, "buffered"))
    assert promises(history) == {"dedupe"}


def test_a_repetition_taken_as_new_is_seen() -> None:
    """The first receipt got lost on its way, so that this is the only one that says `buffered`."""
    history = good()
    history.sendings[4].status = "duplicate"
    history.sendings.append(sent("a/4", CALM + 20, "buffered"))
    assert promises(history) == {"dedupe"}


@pytest.mark.parametrize(("status", "promise"), [("409", {"refused"}), ("500", {"refused"}), ("503", set())])
def test_a_refusal_is_seen(status: str, promise: set[str]) -> None:
    history = good()
    history.sendings.append(sent("a/4", CALM + 20, status))
    assert promises(history) == promise


def test_a_turn_before_the_silence_is_over_is_seen() -> None:
    history = good()
    history.hand_overs[2].at = CALM + 0.7
    assert promises(history) == {"early"}


def test_what_was_too_much_for_the_turn_before_is_due_at_once() -> None:
    history = good()
    history.hand_overs[2].at = CALM + 0.7
    assert violations(history, replace(LIMITS, capacity=3)) == []
    assert violations(history, replace(LIMITS, capacity=4)) != []


def test_a_turn_of_somebody_who_was_typing_is_seen() -> None:
    """After the silence, but not after the longer one that quick messages ask for."""
    history = good()
    history.hand_overs[2].at = CALM + 1.0
    assert promises(history) == {"early"}
    history.sendings[5].at, history.sendings[5].ended_at = CALM + 0.4, CALM + 0.81
    assert promises(history) == set()


def test_max_messages_and_max_wait_are_no_reason_to_complain() -> None:
    history = good()
    history.sendings += [sent("a/6", CALM + 0.5), sent("a/7", CALM + 0.6)]
    history.hand_overs[2] = call(3, CALM + 0.7, "t2", 1, "a/4", "a/5", "a/6", "a/7")
    assert promises(history) == set()
    history = good()
    history.sendings[5] = sent("a/5", CALM + 2.9)
    history.hand_overs[2] = call(3, CALM + 3.0, "t2", 1, "a/4", "a/5")
    history.replies[4:] = replies(3, CALM + 3.2, "t2")
    assert promises(history) == set()


@pytest.mark.parametrize(("after", "is_late"), [(4.9, False), (5.1, True)])
def test_a_late_turn_is_seen(after: float, is_late: bool) -> None:
    history = good()
    history.hand_overs[2] = call(3, CALM + after, "t2", 1, "a/4", "a/5")
    history.replies[4:] = replies(3, CALM + after + 0.2, "t2")
    assert promises(history) == ({"late"} if is_late else set())


@pytest.mark.parametrize(("after", "is_late"), [(1.9, False), (2.1, True)])
def test_a_slow_answer_to_the_turn_before_is_no_lateness_of_the_next(after: float, is_late: bool) -> None:
    """Nor is a call that failed and was made again; what comes after its end is."""
    history = good()
    slow = CALM + 20
    first, again = call(4, CALM + 5, "t3", 1, "a/6"), call(5, CALM + 15, "t3", 2, "a/6")
    first.answer, again.ended_at = (), slow
    history.sendings += [sent("a/6", CALM + 4), sent("a/7", CALM + 6)]
    history.hand_overs += [first, again, call(6, slow + after, "t4", 1, "a/7")]
    history.replies += [*replies(5, slow, "t3"), *replies(6, slow + after + 0.2, "t4")]
    assert promises(history) == ({"late"} if is_late else set())


def test_a_fault_excuses_until_a_lease_after_its_end() -> None:
    history = good()
    history.hand_overs[2] = call(3, CALM + 9, "t2", 1, "a/4", "a/5")
    history.faults.append(Fault("cut", "network", CALM + 1, CALM + 6.1))
    assert promises(history) == set()
    history.faults[-1].ended_at = CALM + 5.9
    assert promises(history) == {"late"}


def test_nothing_excuses_for_ever() -> None:
    history = good()
    history.hand_overs[2] = call(3, CALM + 31, "t2", 1, "a/4", "a/5")
    history.faults.append(Fault("cut", "network", CALM + 1, inf))
    assert promises(history) == {"late"}


def test_half_an_answer_is_seen() -> None:
    history = good()
    del history.replies[-1]
    assert promises(history) == {"unanswered"}


def test_a_reply_sent_again_without_need_is_seen() -> None:
    history = good()
    history.replies.append(replace(history.replies[-1], at=CALM + 1.6))
    assert promises(history) == {"repeated reply"}


def test_a_reply_sent_again_under_another_key_is_seen() -> None:
    history = good()
    history.replies[3] = replace(history.replies[3], key="t1.1 again")
    assert promises(history) == {"repeated reply"}


def test_replies_out_of_order_are_seen() -> None:
    history = good()
    history.replies[4:] = reversed(history.replies[4:])
    assert promises(history) == {"reply order"}


@pytest.mark.parametrize(("after", "promise"), [(1.0, set()), (5.0, {"late"}), (inf, {"lost"})])
def test_what_waited_when_the_index_was_lost_is_answered_soon_after(after: float, promise: set[str]) -> None:
    history = good()
    history.sendings.append(sent("a/6", CALM + 10))
    history.faults.append(Fault("wipe index", "store", CALM + 9, CALM + 12))
    if after < inf:
        history.hand_overs.append(call(4, CALM + 13.5 + after, "t3", 1, "a/6"))
        history.replies += replies(4, CALM + 13.7 + after, "t3")
    assert promises(history) == promise


def test_a_dead_letter_is_seen() -> None:
    """The agent gave nothing up, so nobody may, whatever died meanwhile."""
    history = good()
    history.letters.append(DeadLetter("t1", ("a/1", "a/2"), "failed 3 times"))
    assert promises(history) == {"buried"}


def poisoned() -> History:
    history = good()
    history.poisonous.add("p/1")
    history.sendings.append(sent("p/1", CALM))
    history.hand_overs.append(replace(call(4, CALM + 0.6, "t9", 1, "p/1"), answer=()))
    history.faults.append(Fault("poison", "work1", CALM + 0.6, CALM + 1.0))
    return history


def test_a_poisonous_message_is_given_up_and_nobody_else() -> None:
    history = poisoned()
    assert promises(history) == {"poison"}
    history.letters.append(DeadLetter("t9", ("p/1",), "The worker stopped"))
    assert promises(history) == set()
    history.letters.append(DeadLetter("t2", ("a/4", "a/5"), "The worker stopped"))
    assert promises(history) == {"buried"}


@pytest.mark.parametrize(
    ("kind", "broken"),
    [("fail over", set()), ("promote", {"lost"}), ("promote, planned", {"lost"}), ("kill store", {"lost"})],
)
def test_only_a_failover_that_nobody_waited_for_may_lose_messages(kind: str, broken: set[str]) -> None:
    history = good()
    history.sendings.append(sent("a/6", CALM + 9))
    history.faults.append(Fault(kind, "store", CALM + 9, CALM + 12))
    assert promises(history) == broken


@pytest.mark.parametrize("at", [CALM + 7.9, CALM + 12.1])
def test_a_failover_may_lose_only_what_was_acknowledged_meanwhile(at: float) -> None:
    history = good()
    history.sendings.append(sent("a/6", at))
    history.faults.append(Fault("fail over", "store", CALM + 9, CALM + 12))
    assert promises(history) == {"lost"}


def undone(kind: str) -> History:
    """The store forgot that t2 was claimed and answered; the same messages come again beside one that came since."""
    history = good()
    history.faults.append(Fault(kind, "store", CALM + 1, CALM + 2))
    history.sendings.append(sent("a/6", CALM + 2.5))
    history.hand_overs.append(call(4, CALM + 3.5, "t3", 1, "a/4", "a/5", "a/6"))
    history.replies += replies(4, CALM + 3.7, "t3")
    return history


@pytest.mark.parametrize("kind", ["fail over", "promote"])
def test_work_that_a_failover_undid_may_come_again(kind: str) -> None:
    assert promises(undone(kind)) == set()


@pytest.mark.parametrize("kind", ["kill store", "promote, planned", "hang node", "move slot"])
def test_no_other_fault_undoes_work(kind: str) -> None:
    assert "two turns" in promises(undone(kind))


def test_what_was_undone_must_be_answered_all_the_same() -> None:
    history = undone("promote")
    del history.replies[-1], history.replies[4]
    assert promises(history) == {"unanswered"}


def test_a_message_taken_twice_is_excused_only_if_it_may_have_been_lost() -> None:
    for kind, broken in (("fail over", set()), ("promote", {"dedupe"})):
        history = good()
        history.sendings.append(sent("a/4", CALM + 20, "buffered"))
        history.faults.append(Fault(kind, "store", CALM - 0.5, CALM + 0.5))
        assert promises(history) == broken


def test_a_clock_that_is_ahead_may_hurry_where_no_server_has_one() -> None:
    for kind, broken in (("step the store's clock", set()), ("step a process's clock", {"early"})):
        history = good()
        history.hand_overs[2].at = CALM + 0.7
        history.faults.append(Fault(kind, "all1", CALM - 1, CALM + 0.5))
        assert promises(history) == broken


def test_an_agent_that_was_away_is_asked_again_as_much_later() -> None:
    for after, broken in ((13.9, set()), (14.1, {"late"})):
        history = good()
        history.hand_overs[2] = call(3, CALM + after, "t2", 1, "a/4", "a/5")
        history.replies[4:] = replies(3, CALM + after + 0.2, "t2")
        history.faults.append(Fault("agent away", "agent", CALM + 1, CALM + 6))
        assert promises(history) == broken


def test_whoever_was_beside_poison_may_wait_to_be_tried_alone() -> None:
    for after, kind, broken in ((38.9, "poison", set()), (39.1, "poison", {"late"}), (9.1, "kill worker", {"late"})):
        history = good()
        history.hand_overs[2] = call(3, CALM + after, "t2", 1, "a/4", "a/5")
        history.replies[4:] = replies(3, CALM + after + 0.2, "t2")
        history.faults.append(Fault(kind, "work1", CALM + 1, CALM + 6))
        history.letters.append(DeadLetter("t9", ("p/1",), "The worker stopped"))
        history.poisonous.add("p/1")
        assert promises(history) - {"late"} == set()
        seen = Seen(history, replace(LIMITS, longest=60.0))
        assert {violation.promise for violation in late(seen)} == broken


def test_lateness_counts_from_when_it_was_due() -> None:
    """Typing made t2 due 0.8 s after its last message; t1 was handed over while a fault disturbed."""
    calm, disturbed = latenesses(Seen(good(), LIMITS))
    assert calm == [pytest.approx(0.1)]
    assert len(disturbed) == 1
