"""`turntake turns show`: how a turn came about, and what became of its answer after it left."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from turntake.http.json import answer
from turntake.http.views import turn_view
from turntake.operate.cli import main, turns
from turntake.rules.conversation import Progress, ReplyReport, SealedTurn
from turntake.rules.deadline import Deadline
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import TurnRecord

AT = 1_700_000_000_000
SENT = SealedTurn("turn_1", 1, 1, Deadline(AT, "silence"), AT, AT, AT, (), progress=Progress(("one", "two"), 2, True))


class Api:
    def __init__(self, turn: SealedTurn, *texts: str) -> None:
        messages = tuple(Message(f"m{number}", text, received_at=AT) for number, text in enumerate(texts))
        record = TurnRecord(ConversationKey.of("ann"), turn.id, "replying", len(messages), turn, messages)
        self.view = msgspec.json.decode(bytes(answer(turn_view(record)).body))

    def get(self, path: str) -> Any:
        return self.view


def shown(api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    @contextmanager
    def connected(*_: object) -> Iterator[Api]:
        yield api

    monkeypatch.setattr(turns, "connected", connected)
    assert main(["turns", "show", "turn_1"]) == 0
    return capsys.readouterr().out


def test_messages_of_one_millisecond_keep_their_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = shown(Api(SENT, "Hey", "a question", "#12345"), monkeypatch, capsys)
    assert said.index("Hey") < said.index("a question") < said.index("#12345")


def test_a_turn_that_was_stopped_is_no_dead_letter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api = Api(SENT, "Hey")
    api.view["status"] = "stopped"
    said = shown(api, monkeypatch, capsys)
    assert "said to stop" in said
    assert "dead letter" not in said


def test_a_server_of_an_earlier_release_is_understood(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While an upgrade is under way, the command may be newer than the server."""
    api = Api(SENT, "Hey")
    del api.view["deliveries"]
    assert "Hey" in shown(api, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("replies", "lines"),
    [(("one", "two"), ["part 1: read", "part 2: failed"]), (("one",), ["  read"])],
)
def test_each_part_says_whether_it_arrived(
    replies: tuple[str, ...], lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = (ReplyReport(0, "read", AT), ReplyReport(1, "failed", AT, error="out of reach"))[: len(replies)]
    turn = msgspec.structs.replace(SENT, progress=Progress(replies, len(replies), True), reports=reports)
    said = shown(Api(turn, "hi"), monkeypatch, capsys)
    assert [line for line in lines if line not in said] == []
    assert ("failed" in said) == (len(replies) == 2)


class History:
    """A server with so many turns, which lists at most so many at once."""

    def __init__(self, count: int, page: int) -> None:
        self.turns = [{**Api(SENT, "Hey").view, "turnId": f"turn_{number}"} for number in range(count)]
        self.page = page

    def get(self, path: str, limit: int, cursor: str) -> Any:
        assert path == "/v1/conversations/default%3Ageneric%3Adefault%3Aann/turns"
        start = int(cursor or 0)
        end = start + min(limit, self.page)
        return {"turns": self.turns[start:end], "cursor": str(end) if end < len(self.turns) else None}


@pytest.mark.parametrize(("flags", "count", "last"), [([], 20, "latest 20"), (["--limit", "50"], 25, "turn_24")])
def test_the_turns_of_a_conversation_are_listed(
    flags: list[str], count: int, last: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Page by page, as many as asked for; if there are more, the last line says so."""

    @contextmanager
    def connected(*_: object) -> Iterator[History]:
        yield History(25, page=10)

    monkeypatch.setattr(turns, "connected", connected)
    assert main(["turns", "list", "ann", *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["TURN", "STATUS", "ENDED", "MESSAGES", "WAITED", "REASON", "ATTEMPTS", "ANSWER"]
    assert sum(line.startswith("turn_") for line in lines) == count
    assert "one / two" in lines[1]
    assert last in lines[-1]


def test_turns_are_listed_with_messages_and_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def connected(*_: object) -> Iterator[History]:
        yield History(2, page=10)

    monkeypatch.setattr(turns, "connected", connected)
    assert main(["turns", "list", "ann", "--long"]) == 0
    said = capsys.readouterr().out
    assert said.count("Hey") == said.count("Answer:") == 2
