"""Another process that answers what a stop word ended is told so."""

from turntake.buffer.codec import encode
from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.engine.jobs import news_for_handlers
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.rules.rules import Rules
from turntake.rules.words import Cue

KEY = ConversationKey.of("ann")


def appended(row: Row, id: str, cue: str, now: int) -> Draft:
    draft, message = Draft(KEY, row, now), Message(id)
    draft.append(Append(KEY, message, Rules(), cue=Cue(cue)), encode(message))  # type: ignore[arg-type]
    return draft


def test_a_stop_word_names_the_claim_that_it_ends_and_nothing_that_only_waited() -> None:
    waiting = appended(Row(), "m1", "", 0)
    assert news_for_handlers([appended(Row(1, waiting.conversation), "m2", "stop", 10)]) is None
    taken = Draft(KEY, Row(1, waiting.conversation), 1_000)
    turn = taken.claim(60_000)
    assert turn is not None
    hint = news_for_handlers([appended(Row(2, taken.conversation), "m2", "stop", 2_000)])
    assert hint is not None
    assert hint.interrupted == ((str(KEY), turn.id, taken.conversation.epoch),)
