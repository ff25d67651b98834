"""The table of states in rules/transitions.py is true, and docs/states.svg is drawn from it."""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turntake import ConversationKey, Rules
from turntake.rules import arriving, retried_letters, touching, transitions
from turntake.rules.conversation import Answered, Closed, Conversation, Dead, Progress, Retry, SealedTurn, Touch
from turntake.rules.deadline import Deadline
from turntake.rules.records import Claim

ROOT = Path(__file__).parent.parent
KEY = ConversationKey.of("ada")
FINAL = Progress(("Hello",), is_final=True)
LETTER = Closed("turn_x", 1, 1, "dead", 1, 0, SealedTurn("turn_x", 1, 1, Deadline(0, ""), 0, 0, 0, (), progress=FINAL))
SETTLEMENTS = (Answered(), Dead("given up"), Retry(1_000), Retry(1_000, progress=FINAL))


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("state_diagram", ROOT / "docs" / "state_diagram.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def after_each_event(conversation: Conversation, now: int) -> Iterator[tuple[str, Conversation]]:
    """Every event that can happen to the conversation now, and what it is afterwards."""
    for rules in (Rules(), Rules(on_busy="interrupt"), Rules(on_stale="regenerate"), Rules(on_stale="discard")):
        received, closed = transitions.receive(conversation, rules, now)
        yield "receive" if closed is None else "interrupt", received
    yield "requeue", retried_letters.requeue(conversation, LETTER, 1, 0, now)
    if not conversation.resumed:
        yield "stop", arriving.stop(conversation, KEY, now).conversation
        yield "resume", retried_letters.resume(conversation, LETTER, now)
    yield "clear", touching.touch(conversation, KEY, Touch("clear"), Rules(), now).conversation
    if conversation.due_at is not None:
        yield "claim", transitions.claim(conversation, KEY, 1_000, max(now, conversation.due_at))
    if conversation.turn is None:
        return
    claim = Claim(KEY, conversation.epoch, conversation.turn, ())
    saved = transitions.save(conversation, claim, FINAL)
    if saved is not None:
        yield "save", saved.conversation
    for settlement in SETTLEMENTS:
        settled = transitions.settle(conversation, claim, settlement, now)
        if settled is not None:
            yield "settle", settled.conversation


def steps_taken(depth: int) -> set[tuple[str, str, str]]:
    """Every change of state that `depth` events can bring about, from a conversation that nobody wrote to yet."""
    steps: set[tuple[str, str, str]] = set()
    seen, edge = {Conversation()}, {Conversation()}
    for now in range(1, depth + 1):
        reached = set()
        for conversation in edge:
            for event, after in after_each_event(conversation, now * 10_000):
                if after.state != conversation.state:
                    steps.add((conversation.state, event, after.state))
                reached.add(after)
        edge = reached - seen
        seen |= reached
    return steps


def test_the_table_names_every_step_between_states_and_no_other() -> None:
    script = load_script()
    _, steps = script.read_table(ast.get_docstring(ast.parse(script.TABLE.read_text("utf-8")), clean=False))
    table = {(step.start, event, step.end) for step in steps for event in step.label.split(", ")}
    assert table == steps_taken(5)


def test_the_picture_is_drawn_from_the_table() -> None:
    """If not: python docs/state_diagram.py"""
    script = load_script()
    assert script.PICTURE.read_text("utf-8") == script.picture()


def test_a_step_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="names no state"):
        load_script().read_table("    a    b    c    d\n    -    -    -    -\n    x    y    z    settle\n")
