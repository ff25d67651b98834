"""Log lines: for people, for machines, and never with a person's words."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from turntake.operate import logs


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
