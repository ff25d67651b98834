"""What a message does to its conversation: which agent it is for."""

import pytest

from turntake.rules.arriving import arrive
from turntake.rules.conversation import Change, Conversation, Stop
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append
from turntake.rules.rules import Rules
from turntake.rules.transitions import receive
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
