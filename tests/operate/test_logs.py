"""Log lines: for people, for machines, and never with a person's words."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from turntake import ConversationKey, Rules, TurnTake
from turntake.claim.failures import settlement_after
from turntake.observe.turn_log import TurnLog
from turntake.operate import logs
from turntake.rules.conversation import Progress, SealedTurn
from turntake.rules.deadline import Deadline
from turntake.rules.records import Claim
from turntake.testing.clock import VirtualClock


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Logging is global; whatever a test configures is undone."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    names = ("uvicorn", "uvicorn.error", "uvicorn.access", *logs.QUIET)
    before = {name: (logging.getLogger(name).level, logging.getLogger(name).propagate) for name in names}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, (old_level, propagate) in before.items():
        logging.getLogger(name).setLevel(old_level)
        logging.getLogger(name).propagate = propagate


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_json_lines_where_nobody_watches() -> None:
    """Fields come from `extra`; instants are RFC 3339."""
    stream = io.StringIO()
    logs.configure(logs.LogOptions("info", "auto"), stream)
    logging.getLogger("turntake").info("Claimed", extra={"action": "claim", "conversation": "a:b", "turn": "t1"})
    (line,) = lines(stream)
    record = json.loads(line)
    assert record["at"].endswith("Z")
    del record["at"]
    assert record == {
        "level": "info",
        "logger": "turntake",
        "message": "Claimed",
        "action": "claim",
        "conversation": "a:b",
        "turn": "t1",
    }


def test_one_readable_line_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    logs.configure(logs.LogOptions("info", "auto"), stream)
    logging.getLogger("turntake").warning("Two\nlines", extra={"action": "x", "conversation": "a b", "n": 3})
    (line,) = lines(stream)
    assert line[8:] == ' WARNING Two\\nlines  conversation="a b" n=3'
    assert line[2] == line[5] == ":"


def test_colour_only_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        logs.configure(logs.LogOptions("info", "text"), stream)
        logging.getLogger("turntake").info("Listening")
    assert "\x1b[32mINFO" in terminal.getvalue()
    assert "\x1b" not in file.getvalue()


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize("name", ["text", "replies", "body", "secret", "api_key", "authorization"])
def test_words_and_secrets_are_withheld(format: logs.Format, name: str) -> None:
    """Whoever passes them by mistake, they do not reach the log."""
    stream = io.StringIO()
    logs.configure(logs.LogOptions("info", format), stream)
    logging.getLogger("turntake").info("Buffered", extra={name: "hunter2"})
    assert "hunter2" not in stream.getvalue()
    assert name in stream.getvalue()


@pytest.mark.parametrize("format", ["text", "json"])
def test_exceptions_show_where_and_what_kind_but_not_their_words(format: logs.Format) -> None:
    stream = io.StringIO()
    logs.configure(logs.LogOptions("info", format), stream)
    try:
        raise ValueError("my card number is " + str(1233 + 1))
    except ValueError:
        logging.getLogger("turntake").exception("It broke")
    assert "ValueError" in stream.getvalue()
    assert "test_logs.py" in stream.getvalue()
    assert "1234" not in stream.getvalue()


def test_debug_shows_everything_of_an_exception() -> None:
    stream = io.StringIO()
    logs.configure(logs.LogOptions("debug", "text"), stream)
    try:
        raise ValueError("details " + str(42))
    except ValueError:
        logging.getLogger("turntake").exception("It broke")
    assert "details 42" in stream.getvalue()


def test_uvicorn_speaks_through_us_and_its_access_log_is_silent() -> None:
    stream = io.StringIO()
    logs.configure(logs.LogOptions("info", "json"), stream)
    logging.getLogger("uvicorn.access").info("GET /")
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.error").error("Broken", extra={"color_message": "x"})
    (line,) = lines(stream)
    assert (json.loads(line)["message"], json.loads(line)["logger"]) == ("Broken", "uvicorn.error")
    assert "color_message" not in line


def test_lower_levels_are_not_logged() -> None:
    stream = io.StringIO()
    logs.configure(logs.LogOptions("error", "text"), stream)
    logging.getLogger("turntake").warning("not this")
    logging.getLogger("turntake").error("this")
    assert len(lines(stream)) == 1


@pytest.mark.parametrize("format", ["text", "json"])
def test_the_words_of_an_agents_exception_are_shown_on_request(format: logs.Format) -> None:
    """By `log.error_text`; without it the record has them nowhere that is written."""
    claim = Claim(ConversationKey.of("ada"), 1, SealedTurn("t1", 1, 1, Deadline(0, "silence"), 0, 0, 60_000, ()), ())
    for error_text in (False, True):
        stream = io.StringIO()
        logs.configure(logs.LogOptions(format=format, error_text=error_text), stream)
        try:
            raise LookupError("my card number is " + str(4710 + 1))
        except LookupError as error:
            settlement_after(error, claim, Progress(), Rules(), 0)
        assert "LookupError" in stream.getvalue()
        assert "test_logs.py" in stream.getvalue()
        assert ("4711" in stream.getvalue()) is error_text


async def test_each_answered_turn_is_a_line_at_a_terminal() -> None:
    """Counts and times, and no words of anybody."""
    stream, clock = io.StringIO(), VirtualClock()
    logs.configure(logs.LogOptions("info", "json"), stream)
    async with TurnTake("memory://", agent=lambda turn: "hunter2", clock=clock, observers=[TurnLog()]) as turns:
        await turns.receive("hunter2", conversation="ada", id="m1")
        await clock.advance(60_000)
    (line,) = [json.loads(line) for line in lines(stream)]
    assert (line["message"], line["conversation"], line["messages"]) == ("Answered", "default:generic:default:ada", 1)
    assert (line["waited_ms"], line["because"], line["answers"]) == (1_000, "silence", 1)
    assert "hunter2" not in stream.getvalue()


async def test_what_a_stop_word_ended_is_a_line_at_a_terminal() -> None:
    stream, clock = io.StringIO(), VirtualClock()
    logs.configure(logs.LogOptions("info", "json"), stream)
    rules = Rules(stop_words=("stop",))
    async with TurnTake("memory://", rules=rules, role="accept", clock=clock, observers=[TurnLog()]) as turns:
        await turns.receive("hunter2", conversation="ada", id="m1")
        await turns.receive("stop", conversation="ada", id="m2")
    (line,) = [json.loads(line) for line in lines(stream)]
    assert (line["message"], line["conversation"]) == ("Stopped by a stop word", "default:generic:default:ada")
    assert line["turn"].startswith("turn_")


@pytest.mark.parametrize(
    ("turns", "stream", "is_shown"),
    [
        ("auto", Terminal(), True),
        ("auto", io.StringIO(), False),
        ("always", io.StringIO(), True),
        ("never", Terminal(), False),
    ],
)
def test_turns_are_logged_where_somebody_watches(turns: Any, stream: io.StringIO, is_shown: bool) -> None:
    """A busy server writes no line for each of a thousand turns a second, unless it is told to."""
    assert logs.shows_turns(logs.LogOptions(turns=turns), stream) is is_shown


@pytest.mark.parametrize("format", ["json", "text"])
def test_people_can_be_kept_out_of_the_log(format: logs.Format) -> None:
    """The channel stays, and the same person has the same hash for as long as the process lives."""
    stream = io.StringIO()
    logs.configure(logs.LogOptions("info", format, people="hashed"), stream)
    for number in ("4915112345", "4915112345", "4915100000"):
        key = f"default:whatsapp:777:{number}:order~2F7"
        logging.getLogger("turntake").warning("Failed", extra={"action": "x", "conversation": key})
    first, again, other = (line.rpartition("default:whatsapp:777:#")[2][:12] for line in lines(stream))
    assert "4915" not in stream.getvalue()
    assert "order" not in stream.getvalue()
    assert first == again != other


def test_nothing_in_a_line_steers_a_terminal_or_begins_another_line() -> None:
    """A path may hold any character, and somebody reads the log."""
    stream = io.StringIO()
    logs.configure(logs.LogOptions("info", "text"), stream)
    logging.getLogger("turntake").info("A request failed", extra={"path": "/\x1b[2J\x9b31m\x07\r\n\u2028\x00é"})
    assert stream.getvalue().endswith("path=/\\e[2J\\x9b31m\\x07\\r\\n\\u2028\\x00é\n")
