"""What an exception means for its turn: it becomes a `Setback`, and `rules/retry.py` decides what follows."""

import logging
from random import random

from msgspec.structs import replace

from turntake.claim.replying import storable
from turntake.errors import Away, GiveUp, RetryLater, SendFailed, TimedOut, TurntakeError
from turntake.rules.conversation import Dead, Progress, Retry, Settlement
from turntake.rules.records import Claim
from turntake.rules.retry import Setback, after_setback
from turntake.rules.rules import Rules
from turntake.traces import exc_info, trace_of

log = logging.getLogger("turntake")

# Enough for a long message of an agent or a platform; the whole row is read at every step, so it must stay small.
LONGEST_ERROR = 4_096


def settlement_after(error: Exception, claim: Claim, progress: Progress, rules: Rules, now: int) -> Settlement:
    """How the claim ends after `error`, which is also logged. `progress` is how far the answer was by then."""
    setback = setback_of(error)
    settlement = after_setback(claim.turn, progress, rules, setback, now, random())
    if isinstance(settlement, Dead) and is_agents(error):
        settlement = replace(settlement, trace=storable(trace_of(error))[-LONGEST_ERROR:])
    _log(error, setback, settlement, claim)
    return settlement


def _log(error: Exception, setback: Setback, settlement: Settlement, claim: Claim) -> None:
    """Never the words of the error, which may be a person's or a platform's, unless somebody wants every detail."""
    level, sentence, action = {
        "put off": (logging.INFO, "A turn is put off", "postpone"),
        "given up": (logging.WARNING, "A turn is given up", "give up"),
        "failed": (logging.WARNING, "A turn failed", "fail"),
        "timed out": (logging.WARNING, "A turn failed: its handler took too long and was cancelled", "time out"),
        "away": (logging.WARNING, f"{_who_is_away(error)}; the turn waits", "wait"),
    }[setback.kind]
    facts = {
        "action": action,
        "conversation": str(claim.key),
        "turn": claim.turn.id,
        "attempt": claim.turn.attempt,
        "error": type(error).__name__,
    }
    if isinstance(settlement, Dead):
        level = logging.WARNING
        sentence += "; its messages are a dead letter now: `turntake letters show` with the turn's id says why"
    elif isinstance(settlement, Retry):
        facts["again_in_ms"] = settlement.after_ms
    trace = exc_info(error, has_words=log.isEnabledFor(logging.DEBUG)) if is_agents(error) else None
    # `_error` is for a log that was told to show the words all the same; no formatter writes it by itself.
    log.log(level, sentence, extra={**facts, "_error": error}, exc_info=trace)


def _who_is_away(error: Exception) -> str:
    if isinstance(error, SendFailed):
        return "The platform did not take the answer"
    return "The agent cannot be reached"


def is_agents(error: Exception) -> bool:
    """Whether it came out of the agent's own code: then its author wants to see where from."""
    return not isinstance(error, TurntakeError)


def setback_of(error: Exception) -> Setback:
    """The kind of setback that an exception is, with its words."""
    if isinstance(error, GiveUp):
        return Setback("given up", storable(str(error))[:LONGEST_ERROR])
    text = storable(f"{type(error).__name__}: {error}")[:LONGEST_ERROR]
    if isinstance(error, Away | SendFailed):
        return Setback("away", text)
    if isinstance(error, TimedOut):
        return Setback("timed out", text)
    if isinstance(error, RetryLater):
        return Setback("put off", text, error.after_ms)
    return Setback("failed", text)
