"""What an exception means for its turn: it becomes a `Setback`, and `rules/retry.py` decides what follows."""

import logging
from random import random

from turntake.claim.replying import storable
from turntake.errors import GiveUp, RetryLater
from turntake.rules.conversation import Progress, Settlement
from turntake.rules.records import Claim
from turntake.rules.retry import Setback, after_setback
from turntake.rules.rules import Rules

log = logging.getLogger("turntake")

# Enough for a long message of an agent or a platform; the whole row is read at every step, so it must stay small.
LONGEST_ERROR = 4_096


def settlement_after(error: Exception, claim: Claim, progress: Progress, rules: Rules, now: int) -> Settlement:
    """How the claim ends after `error`, which is also logged. `progress` is how far the answer was by then."""
    setback = setback_of(error)
    level, sentence, action = {
        "put off": (logging.INFO, "A turn is put off", "postpone"),
        "given up": (logging.WARNING, "A turn is given up; its dead letter says why", "give up"),
        "failed": (logging.WARNING, "A turn failed", "fail"),
    }[setback.kind]
    # Never the words of the error, which may be a person's or a platform's.
    facts = {
        "action": action,
        "conversation": str(claim.key),
        "turn": claim.turn.id,
        "attempt": claim.turn.attempt,
        "error": type(error).__name__,
    }
    log.log(level, sentence, extra=facts)
    return after_setback(claim.turn, progress, rules, setback, now, random())


def setback_of(error: Exception) -> Setback:
    """The kind of setback that an exception is, with its words."""
    if isinstance(error, GiveUp):
        return Setback("given up", storable(str(error))[:LONGEST_ERROR])
    text = storable(f"{type(error).__name__}: {error}")[:LONGEST_ERROR]
    if isinstance(error, RetryLater):
        return Setback("put off", text, error.after_ms)
    return Setback("failed", text)
