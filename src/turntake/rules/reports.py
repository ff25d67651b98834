"""What platforms report of replies, later: each says more than is known, or it changes nothing.

Reports come late, twice and in any order. One that a reply failed makes its turn a dead letter, which has its answer.
"""

from msgspec.structs import replace

from turntake.rules.conversation import Closed, Conversation, ReplyReport, SealedTurn

NOT_DELIVERED = "not delivered"
_HOW_FAR = ("sent", "delivered", "read")
"""Each says more than those before it."""


def report(conversation: Conversation, turn_id: str, report: ReplyReport) -> Conversation | None:
    """A platform says what became of a reply of the open turn; None if that is nothing new, or another turn is open."""
    turn = conversation.turn
    noted = None if turn is None or turn.id != turn_id else _with_report(turn, report)
    return None if noted is None else replace(conversation, turn=noted)


def report_closed(closed: Closed, report: ReplyReport, now: int) -> Closed | None:
    """The same of a turn that is over. If the reply failed, the turn becomes a dead letter, which has its answer.

    None if that is nothing new, or if the turn is neither answered nor a dead letter for this very reason.
    """
    is_answer = closed.status == "answered" or (closed.is_letter and closed.reason == NOT_DELIVERED)
    noted = _with_report(closed.turn, report) if closed.turn is not None and is_answer else None
    return None if noted is None else unless_failed(replace(closed, turn=noted), now)


def unless_failed(closed: Closed, now: int) -> Closed:
    """An answered turn; or a dead letter if a platform reported that a reply failed. What failed has yet to be sent."""
    turn = closed.turn
    if turn is None or not turn.reports or not turn.undelivered:
        return closed
    first = turn.undelivered[0]
    unsent = replace(turn, progress=replace(turn.progress, sent=min(first.index, turn.progress.sent)))
    at = closed.at if closed.is_letter else now
    noted = replace(closed, status="dead", at=at, turn=unsent, reason=NOT_DELIVERED, error=first.error)
    return replace(noted, amendments=turn.amendments)


def _with_report(turn: SealedTurn, report: ReplyReport) -> SealedTurn | None:
    """Reports come late, twice and in any order, so that one may say less than is known: then None."""
    known = next((each for each in turn.reports if each.index == report.index), None)
    is_old = report.status == "failed" and report.message_id in turn.resent
    is_news = not is_old and (known is None or _is_newer(report, known))
    if not is_news or not 0 <= report.index < len(turn.progress.replies):
        return None
    others = (each for each in turn.reports if each.index != report.index)
    return replace(turn, reports=tuple(sorted((*others, report), key=lambda each: each.index)))


def _is_newer(report: ReplyReport, known: ReplyReport) -> bool:
    if report.message_id != known.message_id:
        return report.at > known.at  # the reply was sent again since
    if "failed" in (report.status, known.status):
        return known.status == "sent"  # what arrived did not fail, and what failed does not arrive
    return _HOW_FAR.index(report.status) > _HOW_FAR.index(known.status)
