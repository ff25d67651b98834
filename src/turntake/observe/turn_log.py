"""The observer behind `log.turns`: a line for each turn that is over, so that one sees at a terminal that it works.

No words, only counts and times: what people and agents say stays out of logs.
"""

import logging

from turntake.observe.observer import Observer
from turntake.rules.conversation import Answered
from turntake.rules.key import ConversationKey
from turntake.rules.records import Claim

log = logging.getLogger("turntake")


class TurnLog(Observer):
    """Logs turns that were answered, or ended by a stop word, at info. Those that failed are logged by whoever tried
    them."""

    def answered(self, at: int, claim: Claim, answer: Answered) -> None:
        turn = claim.turn
        facts = {
            "action": "answer",
            "conversation": str(claim.key),
            "messages": len(claim.messages),
            "waited_ms": turn.claimed_at - claim.first_at,
            "because": turn.due.reason,
            "took_ms": at - turn.claimed_at,
            "answers": len(answer.replies),
            "turn": turn.id,
        }
        if turn.attempt > 1:
            facts["attempt"] = turn.attempt
        log.info("Answered", extra=facts)

    def stopped(self, at: int, key: ConversationKey, turn_id: str) -> None:
        log.info("Stopped by a stop word", extra={"action": "stop", "conversation": str(key), "turn": turn_id})
