"""What a message does to its conversation: which agent it is for, and what a stop word leaves."""

import pytest
from msgspec.structs import replace

from turntake.rules.arriving import arrive
from turntake.rules.conversation import Change, Conversation, Progress, Stop
from turntake.rules.cues import cue_of
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.rules.rules import Rules
from turntake.rules.scopes import Layer, RuleBook, RuleScope
from turntake.rules.transitions import claim, receive
from turntake.rules.words import NO_CUE, Cue
from turntake.testing.clock import START

ANN = ConversationKey.of("ann")
WITH_SALES = receive(Conversation(), Rules(), START, "sales").conversation


@pytest.mark.parametrize(("named", "agent"), [("support", "support"), ("", "sales")])
def test_a_message_is_for_the_agent_that_it_names_or_that_the_conversation_has(named: str, agent: str) -> None:
    change = arrive(WITH_SALES, Append(ANN, Message("m2", "hi"), Rules(), named, NO_CUE), START)
    assert isinstance(change, Change)
    assert change.conversation.agent == agent
    stop = arrive(WITH_SALES, Append(ANN, Message("m2", "stop"), Rules(), named, Cue("stop")), START)
    assert isinstance(stop, Stop)
    assert (stop.conversation.agent, stop.turn.agent) == (agent, agent)


def test_a_message_that_names_no_agent_says_what_it_says_to_the_conversations_own() -> None:
    """Agents may have words of their own."""
    rules = RuleBook({RuleScope("agent", "sales"): Layer({"stop_words": ["halt"]})}).of(ANN)
    halt = Message("m2", "Halt!")
    assert isinstance(arrive(WITH_SALES, Append(ANN, halt, rules, "", cue_of(halt, rules)), START), Stop)
    assert isinstance(arrive(Conversation(), Append(ANN, halt, rules, "", cue_of(halt, rules)), START), Change)


ANSWERED = claim(WITH_SALES, ANN, 60_000, START + 1_000)


def stopped(conversation: Conversation, at: int = START + 2_000) -> Stop:
    change = arrive(conversation, Append(ANN, Message("s", "stop"), Rules(), "", Cue("stop")), at)
    assert isinstance(change, Stop)
    return change


def test_a_conversation_may_begin_with_a_stop_word() -> None:
    """Its turn has another id than one of the same numbers in a conversation that was forgotten."""
    first, later = stopped(Conversation(), START), stopped(Conversation(), START + 1)
    assert (first.conversation.began_at, later.conversation.began_at) == (START, START + 1)
    assert first.turn.id != later.turn.id


def test_a_stop_word_takes_the_place_of_the_turn_that_it_ends() -> None:
    """Whoever answered has no claim any more."""
    stop = stopped(ANSWERED)
    assert stop.conversation.turn == stop.turn
    assert [ended.epoch for ended in stop.ended] == [stop.conversation.epoch] == [ANSWERED.epoch + 1]


def test_a_stop_word_goes_before_answers_that_have_yet_to_be_sent_again() -> None:
    assert ANSWERED.turn is not None
    running = replace(ANSWERED.turn, is_committed=True)
    again = replace(running, id="turn_again", progress=Progress(("done",), is_final=True))
    stop = stopped(replace(ANSWERED, turn=running, resumed=(again,)))
    assert (stop.ended, stop.conversation.turn) == ((), running)
    assert [turn.id for turn in stop.conversation.resumed] == [stop.turn.id, "turn_again"]


def test_a_stop_word_comes_after_what_was_said_before_it_whatever_the_clock_says() -> None:
    assert stopped(ANSWERED, START - 5_000).turn.last_at == START
