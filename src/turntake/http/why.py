"""Why does it wait? One sentence about where a conversation stands. Pure."""

from turntake.rules.conversation import Buffer, Conversation, SealedTurn
from turntake.rules.deadline import REASONS

OTHER = "a later release has its reasons"
ENDINGS = {
    "failed": " The latest turn could not be answered: it became a dead letter.",
    "timed_out": " The latest turn was not answered in time: it became a dead letter.",
}


def why(conversation: Conversation, now: int) -> str:
    buffer, turn = conversation.buffer, conversation.turn
    if turn is not None:
        return " ".join(filter(None, (_answering(turn, now), _stop(conversation), _behind(conversation.waiting))))
    if buffer is not None:
        return _collecting(buffer, conversation.waiting, now)
    return f"Nothing waits.{ENDINGS.get(conversation.status, '')}"


def _collecting(buffer: Buffer, count: int, now: int) -> str:
    reason = buffer.due.reason
    if buffer.due.at <= now:
        due = f"due {_seconds(now - buffer.due.at)} ago"
        return f"{_messages(count)} for a worker, {due}; the wait for the person ended by: {reason}."
    return f"{_messages(count)} for {_seconds(buffer.due.at - now)} more: {REASONS.get(reason, OTHER)} ({reason})."


def _answering(turn: SealedTurn, now: int) -> str:
    if not turn.attempt and not turn.is_leased:
        return f"The turn waits for a worker; the wait for the person ended by: {turn.due.reason}."
    if turn.due_at <= now:
        return f"Attempt {turn.attempt} is over and the turn waits for a worker to take it again."
    left = _seconds(turn.due_at - now)
    if not turn.is_leased:
        return f"Attempt {turn.attempt} did not succeed; the next one is due in {left}."
    doing = "the answer is being sent" if turn.progress.is_final else "the agent has the turn"
    return f"Attempt {turn.attempt}: {doing}, and the lease runs {left} more."


def _stop(conversation: Conversation) -> str:
    """A stop word is no message that waits: it is a turn already, behind an answer that could not be called back."""
    waits = any(turn.due.reason == "stop word" for turn in conversation.resumed)
    return "A stop word waits behind it, and is the next turn." if waits else ""


def _behind(count: int) -> str:
    return f"{_messages(count)} for the next turn." if count else ""


def _messages(count: int) -> str:
    return "1 message waits" if count == 1 else f"{count} messages wait"


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.1f} s"
