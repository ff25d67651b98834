"""The typing indicator that a person sees while the agent works; whatever happens to it, the answer is sent."""

import asyncio

import pytest

from harness.platforms.notes import TO, Board, Notes, answered, replies
from harness.platforms.server import FakeAnswer, silence
from turntake import GiveUp, Turn
from turntake.deliver import replies as deliver_replies
from turntake.deliver.replies import TYPING_DELAY_MS, Replies
from turntake.platforms.replies import ApiCall, Recipient
from turntake.testing.clock import VirtualClock


async def test_the_person_sees_typing_while_the_agent_works(board: Board) -> None:
    clock = VirtualClock()

    async def answer(turn: Turn) -> str:
        await clock.advance(TYPING_DELAY_MS)
        while len(board.calls) < 3:
            await clock.advance(Notes.typing_ms)
        return "done"

    await answered(replies(board, clock=clock), answer)
    paths = [call.path for call in board.calls]
    assert paths[:3] == ["/typing"] * 3
    assert paths.count("/notes") == paths.count("/stopped") == 1
    assert "/typing" not in paths[paths.index("/notes") + 1 :]


async def test_an_answer_that_is_there_at_once_needs_no_typing(board: Board) -> None:
    clock = VirtualClock()

    async def answer(turn: Turn) -> str:
        await clock.advance(TYPING_DELAY_MS - 1)
        return "done"

    await answered(replies(board, clock=clock), answer)
    assert [call.path for call in board.calls] == ["/notes"], "and none that takes it back"


async def test_typing_that_fails_harms_nothing(board: Board) -> None:
    board.next.append(FakeAnswer(500))
    clock = VirtualClock()

    async def answer(turn: Turn) -> str:
        await clock.advance(TYPING_DELAY_MS)
        while len(board.calls) < 2:
            await clock.advance(Notes.typing_ms)
        return "done"

    assert (await answered(replies(board, clock=clock), answer)).status == "answered"


class Clumsy(Notes):
    """Written by somebody who did not read what a typing indicator must not do."""

    def typing_call(self, to: Recipient) -> ApiCall:
        raise GiveUp("no idea how")

    def typing_stopped_call(self, to: Recipient) -> ApiCall:
        raise GiveUp("no idea how")


async def test_typing_that_cannot_even_be_asked_for_harms_nothing(board: Board) -> None:
    async def answer(turn: Turn) -> str:
        return "done"

    record = await answered(Replies({("notes", ""): Clumsy({"api_base": board.url})}), answer)
    assert record.status == "answered"
    assert board.sent == [("ann", "done")]


async def test_typing_is_not_shown_where_it_is_switched_off(board: Board) -> None:
    async def answer(turn: Turn) -> str:
        return "done"

    await answered(replies(board), answer)
    assert [call.path for call in board.calls] == ["/notes"]


async def test_closing_waits_only_a_moment_for_an_indicator_to_be_taken_back(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A platform that keeps silent does not hold up a stop for as long as a reply may take."""
    monkeypatch.setattr(deliver_replies, "CLOSE_GRACE_MS", 1)
    clock = VirtualClock()
    out = replies(board, timeout_ms=600_000, clock=clock)
    with silence() as silent:
        board.next.extend([silent, silent])
        async with out.composing(TO):
            await clock.advance(TYPING_DELAY_MS)
            await asyncio.to_thread(board.wait_for_calls, 1)
        calls = await asyncio.to_thread(board.wait_for_calls, 2)
        assert [call.path for call in calls] == ["/typing", "/stopped"]
        await asyncio.wait_for(out.aclose(), 20)
