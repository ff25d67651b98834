"""What an exception means for its turn: which kind of setback it is, what is kept of its words, and what is logged."""

import logging

import pytest
from msgspec.structs import replace

from turntake import ConversationKey, GiveUp, RetryLater, Rules
from turntake.claim.failures import LONGEST_ERROR, setback_of, settlement_after
from turntake.errors import Away, CallFailed, FateUnknown, SendFailed, TimedOut
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
        (SendFailed("refused"), Setback("away", "SendFailed: refused")),
        (Away("refused"), Setback("away", "Away: refused")),
        (TimedOut("too long"), Setback("timed out", "TimedOut: too long")),
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
        (ValueError("a secret"), Dead("failed once", "ValueError: a secret"), logging.WARNING, "fail"),
    ],
)
def test_what_follows_is_logged_without_the_words(
    error: Exception, settlement: object, level: int, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be a person's. The settlement has them, for whoever looks at the turn."""
    with caplog.at_level(logging.INFO, "turntake"):
        ended = settlement_after(error, CLAIM, Progress(), Rules(max_attempts=1), NOW)
    assert (replace(ended, trace="") if isinstance(ended, Dead) else ended) == settlement
    (record,) = caplog.records
    facts = {name: value for name, value in vars(record).items() if name != "_error"}
    assert (record.levelno, facts["action"], facts["turn"], facts["attempt"]) == (level, action, "t1", 1)
    assert facts["error"] == type(error).__name__
    assert "a secret" not in str(facts)


def broken(order: dict[str, str]) -> str:
    return order["number"]


def raised(order: dict[str, str], cause: Exception | None = None) -> Exception:
    """An exception as an agent's own code raises it."""
    try:
        try:
            broken(order)
        except KeyError as error:
            if cause is None:
                raise
            raise cause from error
    except Exception as error:
        return error
    raise AssertionError


def logged(error: Exception, level: int, caplog: pytest.LogCaptureFixture, rules: Rules = Rules()) -> str:  # noqa: B008
    """What somebody sees who set logging up as every Python program does."""
    with caplog.at_level(level, "turntake"):
        settlement_after(error, CLAIM, Progress(), rules, NOW)
    return logging.Formatter("%(levelname)s %(message)s").format(caplog.records[-1])


def test_an_agents_exception_shows_where_it_came_from(caplog: pytest.LogCaptureFixture) -> None:
    """The frames of the agent and the kind, in any program's log; what it says only to those who debug."""
    error = raised({}, ValueError("Ada's card is 4711"))
    said = logged(error, logging.INFO, caplog)
    assert said.startswith("WARNING A turn failed\nTraceback")
    assert 'test_failures.py", line' in said
    assert 'return order["number"]' in said
    assert "\nKeyError\n" in said
    assert said.endswith("\nValueError")
    assert "4711" not in said.replace('ValueError("Ada', "")
    assert logged(error, logging.DEBUG, caplog).endswith("ValueError: Ada's card is 4711")


def test_who_is_away_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """One who is woken at night looks at the agent, or at the platform."""
    assert logged(Away("refused"), logging.INFO, caplog) == "WARNING The agent cannot be reached; the turn waits"
    sent = logged(SendFailed("502"), logging.INFO, caplog)
    assert sent == "WARNING The platform did not take the answer; the turn waits"


def test_that_it_became_a_dead_letter_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """And before that, when it is tried again."""
    said = logged(raised({}), logging.INFO, caplog, Rules(max_attempts=2))
    assert "dead letter" not in said
    assert vars(caplog.records[-1])["again_in_ms"] >= 500
    said = logged(raised({}), logging.INFO, caplog, Rules(max_attempts=1))
    assert said.startswith("WARNING A turn failed; its messages are a dead letter now: `turntake letters show`")


def test_our_own_errors_need_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Where we noticed that an agent did not answer is of no use to anybody."""
    assert logged(CallFailed("broke off"), logging.INFO, caplog) == "WARNING A turn failed"


def test_a_dead_letter_keeps_the_traceback_with_its_words() -> None:
    dead = settlement_after(raised({}), CLAIM, Progress(), Rules(max_attempts=1), NOW)
    assert isinstance(dead, Dead)
    assert 'return order["number"]' in dead.trace
    assert dead.trace.endswith("KeyError: 'number'")
    dead = settlement_after(RuntimeError("x" * 9_000), CLAIM, Progress(), Rules(max_attempts=1), NOW)
    assert isinstance(dead, Dead)
    assert len(dead.trace) == LONGEST_ERROR
