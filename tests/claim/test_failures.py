"""What an exception means for its turn: which kind of setback it is, what is kept of its words, and what is logged."""

import logging

import pytest

from turntake import ConversationKey, GiveUp, RetryLater, Rules
from turntake.claim.failures import LONGEST_ERROR, setback_of, settlement_after
from turntake.errors import CallFailed, FateUnknown, SendFailed
from turntake.rules.conversation import Dead, Progress, Retry, SealedTurn
from turntake.rules.deadline import Deadline
from turntake.rules.records import Claim
from turntake.rules.retry import Setback

NOW = 1_700_000_000_000
CLAIM = Claim(
    ConversationKey.of("ada"), 1, SealedTurn("t1", 1, 1, Deadline(NOW, "silence"), NOW, NOW, NOW + 60_000, ()), ()
)


@pytest.mark.parametrize(
    ("error", "setback"),
    [
        (RetryLater(2.5, "busy"), Setback("put off", "RetryLater: busy", 2_500)),
        (GiveUp("no such chat"), Setback("given up", "no such chat")),
        (RuntimeError("no model"), Setback("failed", "RuntimeError: no model")),
        (CallFailed("broke off"), Setback("failed", "CallFailed: broke off")),
        (SendFailed("refused"), Setback("failed", "SendFailed: refused")),
        (FateUnknown("silence"), Setback("failed", "FateUnknown: silence")),
    ],
)
def test_the_kind_of_setback(error: Exception, setback: Setback) -> None:
    """A pause that was asked for is kept in milliseconds."""
    assert setback_of(error) == setback


@pytest.mark.parametrize("kind", [RuntimeError, GiveUp])
def test_of_a_long_error_only_the_beginning_is_kept(kind: type[Exception]) -> None:
    """It is written into the row, which is read at every step; and what no store takes is left out."""
    error = setback_of(kind("\ud83d" + "x" * 2 * LONGEST_ERROR)).error
    assert len(error) == LONGEST_ERROR
    assert "?xxx" in error


@pytest.mark.parametrize(
    ("error", "settlement", "level", "action"),
    [
        (RetryLater(2, "a secret"), Retry(2_000, False, "RetryLater: a secret"), logging.INFO, "postpone"),
        (GiveUp("a secret"), Dead("given up", "a secret"), logging.WARNING, "give up"),
        (ValueError("a secret"), Dead("failed 1 times", "ValueError: a secret"), logging.WARNING, "fail"),
    ],
)
def test_what_follows_is_logged_without_the_words(
    error: Exception, settlement: object, level: int, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be a person's. The settlement has them, for whoever looks at the turn."""
    with caplog.at_level(logging.INFO, "turntake"):
        assert settlement_after(error, CLAIM, Progress(), Rules(max_attempts=1), NOW) == settlement
    (record,) = caplog.records
    facts = vars(record)
    assert (record.levelno, facts["action"], facts["turn"], facts["attempt"]) == (level, action, "t1", 1)
    assert facts["error"] == type(error).__name__
    assert "a secret" not in str(facts)
