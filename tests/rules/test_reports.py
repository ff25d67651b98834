"""What platforms report of the replies of a turn that is over, and what becomes of it then."""

from msgspec.structs import replace

from turntake.rules.conversation import Closed, Progress, ReplyReport, SealedTurn
from turntake.rules.deadline import Deadline
from turntake.rules.reports import NOT_DELIVERED, report_closed

FINAL = Progress(("one", "two"), 2, is_final=True)
TURN = SealedTurn("turn_x", 1, 3, Deadline(0, "silence"), 0, 0, 0, (), progress=FINAL, amendments=1)
ANSWERED = Closed("turn_x", 1, 3, "answered", 1, 1_000, TURN)
FAILED = ReplyReport(1, "failed", 2_000, "wamid.2", "out of reach")


def test_an_answer_of_which_a_reply_failed_is_a_letter_since_then() -> None:
    """What comes later adds to it, and makes it no newer: letters are listed and discarded by their age."""
    letter = report_closed(ANSWERED, FAILED, 5_000)
    assert letter is not None
    assert (letter.at, letter.reason, letter.error, letter.amendments) == (5_000, NOT_DELIVERED, "out of reach", 1)
    later = report_closed(letter, replace(FAILED, index=0, message_id="wamid.1"), 9_000)
    assert later is not None
    assert later.turn is not None
    assert (later.at, later.turn.progress.sent, len(later.turn.reports)) == (5_000, 0, 2)


def test_a_letter_for_another_reason_takes_no_reports() -> None:
    """Its reason is what has to be done about it."""
    assert report_closed(replace(ANSWERED, status="dead", reason="failed 3 times"), FAILED, 5_000) is None
    assert report_closed(replace(ANSWERED, status="interrupted"), FAILED, 5_000) is None
