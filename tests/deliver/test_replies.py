"""Answers that leave through a platform's API: whole, in order, once, and what happens when they cannot."""

import logging
import socket
from collections.abc import Iterator

import pytest

from harness.platforms.notes import ANN, AT_ONCE, ONE_ATTEMPT, TO, Board, Notes, answered, replies
from harness.platforms.server import FakeAnswer, silence
from harness.servers import Later
from turntake import ConversationKey, Turn, TurnTake
from turntake.arrival import Arrival
from turntake.deliver.callback import Callback
from turntake.deliver.options import Quote, ReplyOptions
from turntake.deliver.outbound import NoOutbound
from turntake.deliver.replies import Replies
from turntake.errors import FateUnknown, SendFailed
from turntake.platforms.replies import Recipient
from turntake.rules.message import Message


async def test_a_reply_leaves_in_pieces_and_in_order(board: Board) -> None:
    async def answer(turn: Turn) -> list[str]:
        await turn.reply("one moment please")
        return ["it is on its way to you", "bye"]

    record = await answered(replies(board), answer)
    texts = [text for _, text in board.sent]
    assert texts == ["one moment", "please", "it is on", "its way to", "you", "bye"]
    assert record.turn is not None
    assert list(record.turn.progress.replies) == texts
    assert [call.json["id"] for call in board.calls] == [f"{record.id}-{place}" for place in range(6)]
    assert {call.json["from"] for call in board.calls} == {"us"}


async def test_the_account_and_the_thread_are_those_of_the_conversation(board: Board) -> None:
    out = replies(board)
    key = ConversationKey.of("ann", channel="notes", account="sales/+49", topic="17.5@ann")
    await out.send(Recipient(key, "turn_1", ()), 0, "hi")
    assert board.calls[0].json == {"to": "ann", "text": "hi", "from": "+49", "thread": "17.5", "id": "turn_1-0"}
    assert not out.can_send(ConversationKey.of("ann", channel="notes", account="other/+49"))
    assert not out.can_send(ConversationKey.of("ann", channel="elsewhere"))
    await out.aclose()


@pytest.mark.parametrize(("account", "own"), [("us", "us"), ("sales/us", "us"), ("sales/a/b", "a/b"), ("/a/b", "a/b")])
async def test_an_id_with_a_slash_is_still_one_id(board: Board, account: str, own: str) -> None:
    """The first slash ends our account's name: what follows is the platform's."""
    out = replies(board)
    await out.send(Recipient(ConversationKey.of("ann", channel="notes", account=account), "turn_1", ()), 0, "hi")
    assert [call.json["from"] for call in board.calls] == [own]
    await out.aclose()


@pytest.mark.parametrize(
    ("quotes", "topic", "quoted"),
    [("groups", "", None), ("groups", "17.5@ann", "m1"), ("always", "", "m1"), ("never", "@ann", None)],
)
async def test_an_answer_in_a_group_quotes_what_it_answers(
    board: Board, quotes: Quote, topic: str, quoted: str | None
) -> None:
    """The first part alone, since the others follow it."""
    out = Replies({("notes", ""): Notes({"api_base": board.url})}, options=ReplyOptions(quote=quotes))
    key = ConversationKey.of("team", channel="notes", topic=topic)
    for index in range(2):
        await out.send(Recipient(key, "turn_1", (Message("m0", "hey"), Message("m1", "hi"))), index, "hello")
    assert [call.json.get("quoted") for call in board.calls] == [quoted, None]
    await out.aclose()


async def test_a_crash_between_pieces_sends_none_twice(board: Board) -> None:
    """The second piece fails once; the first is not sent again."""
    board.next.extend([FakeAnswer(body={"id": "n1"}), FakeAnswer(503)])

    async def answer(turn: Turn) -> str:
        return "it is here already"

    record = await answered(replies(board), answer)
    assert record.status == "answered"
    assert [call.json["text"] for call in board.calls] == ["it is here", "already", "already"]


async def test_the_platform_says_when_to_come_again(board: Board) -> None:
    board.next.append(FakeAnswer(429, headers={"retry-after": "0.2"}))

    async def answer(turn: Turn) -> str:
        return "hello"

    record = await answered(replies(board), answer, ONE_ATTEMPT)
    assert record.status == "answered"
    assert board.sent == [("ann", "hello")]


async def test_what_it_never_takes_becomes_a_dead_letter_with_its_words(
    board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    board.next.append(FakeAnswer(403, {"error": "the window of 24 hours is closed"}))

    async def answer(turn: Turn) -> str:
        return "hello"

    with caplog.at_level(logging.WARNING, "turntake"):
        record = await answered(replies(board), answer)
    assert "given up" in caplog.text
    assert "24 hours" not in caplog.text, "a platform's words may be a person's"
    assert record.status == "dead"
    assert record.closed is not None
    assert record.closed.error == "the window of 24 hours is closed"
    assert len(board.calls) == 1


async def test_no_answer_in_time_is_unknown_and_sent_again(board: Board) -> None:
    async def answer(turn: Turn) -> str:
        return "hello"

    with silence() as nothing:
        board.next.append(nothing)
        record = await answered(replies(board, timeout_ms=150), answer)
    assert record.turn is not None
    assert record.turn.progress.unknown == (0,)
    assert board.sent == [("ann", "hello")]
    assert len(board.calls) == 2


async def test_no_answer_in_time_counts_as_sent_where_that_is_set(
    board: Board, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(turn: Turn) -> list[str]:
        return ["first", "second"]

    with silence() as nothing, caplog.at_level(logging.WARNING, "turntake"):
        board.next.append(nothing)
        record = await answered(replies(board, timeout_ms=150, again=False), answer, ONE_ATTEMPT)
    assert record.status == "answered", "it is no failure"
    assert record.turn is not None
    assert record.turn.progress.unknown == (0,)
    assert board.sent == [("ann", "second")]
    assert "A reply may have been sent or not" in caplog.text
    assert "first" not in caplog.text


async def test_a_platform_that_is_not_there_was_certainly_not_reached() -> None:
    out = Replies({("notes", ""): Notes({"api_base": "http://127.0.0.1:1"})}, options=ReplyOptions(timeout_ms=2_000))
    with pytest.raises(SendFailed, match="could not be reached"):
        await out.send(TO, 0, "hi")
    await out.aclose()


@pytest.fixture
def wall() -> Iterator[int]:
    """A port where connections are made and nobody ever says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def test_a_connection_that_is_never_finished_sent_nothing(wall: int) -> None:
    """What times out before the reply was handed over is tried again, and never counts as sent."""
    out = Replies(
        {("notes", ""): Notes({"api_base": f"https://127.0.0.1:{wall}"})}, options=ReplyOptions(timeout_ms=150)
    )
    with pytest.raises(SendFailed, match="could not be reached"):
        await out.send(TO, 0, "hi")
    await out.aclose()


async def test_a_reply_that_was_handed_over_may_have_arrived(wall: int) -> None:
    out = Replies(
        {("notes", ""): Notes({"api_base": f"http://127.0.0.1:{wall}"})}, options=ReplyOptions(timeout_ms=150)
    )
    with pytest.raises(FateUnknown):
        await out.send(TO, 0, "hi")
    await out.aclose()


async def test_no_address_is_logged_since_it_may_hold_a_token(board: Board, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever embeds us may have every library's lines in their log."""
    board.next.append(FakeAnswer(body={"id": "n1"}))
    out = Replies({("notes", ""): Notes({"api_base": f"{board.url}/bot-s3cret"})})
    with caplog.at_level(logging.DEBUG):
        await out.send(TO, 0, "hi")
    await out.aclose()
    assert board.calls[0].path == "/bot-s3cret/notes"
    assert "s3cret" not in caplog.text


async def test_a_cut_connection_leaves_the_fate_unknown(board: Board) -> None:
    with silence() as nothing:
        assert nothing.silent_until is not None
        nothing.silent_until.set()  # closes without an answer
        board.next.append(nothing)
        out = replies(board)
        with pytest.raises(FateUnknown):
            await out.send(TO, 0, "hi")
        await out.aclose()


async def test_closing_closes_what_other_channels_leave_by() -> None:
    closed: list[str] = []

    class Elsewhere(NoOutbound):
        async def aclose(self) -> None:
            closed.append("elsewhere")

    await Replies({}, Elsewhere()).aclose()
    await Callback(elsewhere=Elsewhere()).aclose()
    await Callback("http://127.0.0.1:1/", Elsewhere()).aclose()
    assert closed == ["elsewhere"] * 3


async def test_a_reply_of_nothing_sends_nothing(board: Board) -> None:
    async def answer(turn: Turn) -> list[str]:
        return [" ", "\n"]

    assert (await answered(replies(board), answer)).status == "answered"
    assert board.calls == []


async def test_an_answer_by_the_api_leaves_in_pieces_too(board: Board) -> None:
    out = replies(board)
    async with (
        TurnTake("memory://", rules=AT_ONCE, agent=Later(), outbound=out) as turns,
        turns.events.watch() as events,
    ):
        await turns.accept([Arrival(ANN, Message("m1", "hi"))])
        while (event := await events.get()).kind != "claimed":
            continue
        await turns.complete(event.turn_id, ("this one is too long for it",))
        while (await events.get()).kind != "answered":
            continue
    await out.aclose()
    assert [text for _, text in board.sent] == ["this one", "is too", "long for", "it"]
