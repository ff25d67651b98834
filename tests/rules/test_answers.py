"""One answer for one turn, the same turn on every attempt, and holds that hold."""

from msgspec.structs import replace

from turntake.rules.conversation import Answered, Conversation, Dead, Progress, Retry, SealedTurn, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.records import Claim
from turntake.rules.rules import Rules
from turntake.rules.touching import touch
from turntake.rules.transitions import claim, extend, is_same, receive, save, settle, turn_id

ADA = ConversationKey.of("ada")
RULES = Rules(silence_ms=0, typing_inference_ms=0)


def claimed(agent: str = "") -> Conversation:
    return claim(receive(Conversation(), RULES, 0, agent).conversation, ADA, 1_000, 0)


def sealed() -> SealedTurn:
    turn = claimed().turn
    assert turn is not None
    return turn


CLAIM = Claim(ADA, 1, sealed(), ())


def test_a_claim_of_another_turn_with_the_same_epoch_holds_nothing() -> None:
    """After a failover to a replica that lagged, an epoch may be given out a second time, for other messages."""
    other = Claim(ADA, 1, replace(sealed(), id=turn_id(ADA, 1, 2), tail=2), ())
    assert extend(claimed(), CLAIM, 1_000, 0) is not None
    assert extend(claimed(), other, 1_000, 0) is None
    assert save(claimed(), other, Progress(("yes",), 0, True)) is None
    for settlement in (Answered(("yes",)), Retry(0), Dead("no")):
        assert settle(claimed(), other, settlement, 10) is None
    change = settle(claimed(), CLAIM, Answered(), 10)
    assert change is not None
    assert change.closed is not None
    assert not is_same(change.closed, other, Answered())


def test_a_retry_goes_to_the_agent_the_turn_was_sealed_for() -> None:
    """A later message may name another agent; that is for the next turn."""
    retrying = settle(claimed("sales"), CLAIM, Retry(0), 10)
    assert retrying is not None
    meanwhile = receive(retrying.conversation, RULES, 20, "support").conversation
    again = claim(meanwhile, ADA, 1_000, 30)
    assert again.turn is not None
    assert again.turn.agent == "sales"


def test_a_final_answer_is_not_replaced() -> None:
    """An agent that reports twice, or from two places, is heard once."""
    first = save(claimed(), CLAIM, Progress(("yes",), 0, True))
    assert first is not None
    assert save(first.conversation, CLAIM, Progress(("no",), 0, True)) is None
    assert settle(first.conversation, CLAIM, Answered(("no",)), 10) is None


def test_progress_of_the_same_answer_goes_on() -> None:
    first = save(claimed(), CLAIM, Progress(("yes", "and"), 0, True))
    assert first is not None
    assert save(first.conversation, CLAIM, Progress(("yes", "and"), 1, True)) is not None
    assert settle(first.conversation, CLAIM, Answered(("yes", "and")), 10) is not None


def test_only_the_same_answer_counts_as_a_repetition() -> None:
    change = settle(claimed(), CLAIM, Answered(("yes",)), 10)
    assert change is not None
    assert change.closed is not None
    assert is_same(change.closed, CLAIM, Answered(("yes",)))
    assert not is_same(change.closed, CLAIM, Answered(("no",)))


def test_a_final_answer_does_not_become_a_draft_again() -> None:
    first = save(claimed(), CLAIM, Progress(("yes",), 1, True))
    assert first is not None
    assert save(first.conversation, CLAIM, Progress(("yes",), 0, False)) is None
    assert save(first.conversation, CLAIM, Progress(("yes",), 0, True)) is None


def test_handing_back_with_another_answer_is_refused() -> None:
    """A completion from outside that comes after the first final answer changes nothing."""
    first = save(claimed(), CLAIM, Progress(("yes",), 0, True))
    assert first is not None
    assert (
        settle(first.conversation, CLAIM, Retry(0, is_failure=False, progress=Progress(("no",), 0, True)), 10) is None
    )
    same = settle(first.conversation, CLAIM, Retry(0, is_failure=False, progress=Progress(("yes",), 0, True)), 10)
    assert same is not None
    assert same.conversation.due_at == 10


def test_the_latest_hold_counts() -> None:
    waiting = receive(Conversation(), Rules(), 0).conversation
    long = touch(waiting, ADA, Touch("hold", 60_000), Rules(), 0).conversation
    assert long.due_at == 60_000
    assert touch(long, ADA, Touch("hold", 2_000), Rules(), 100).conversation.due_at == 2_100


def test_a_hold_outlives_an_interruption() -> None:
    rules = Rules(on_busy="interrupt")
    queued = receive(claimed(), Rules(), 10).conversation
    held = touch(queued, ADA, Touch("hold", 60_000), rules, 20).conversation
    interrupted = receive(held, rules, 30).conversation
    assert interrupted.turn is None
    assert interrupted.due_at == 60_020
