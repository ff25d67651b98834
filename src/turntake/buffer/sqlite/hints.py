"""Hints between processes that share a file: each that listens has a named pipe beside the file.

How this works: whoever listens makes a pipe, named after the file and itself, and reads lines from it, a hint each.
Whoever publishes writes to all pipes but its own. A pipe that nobody reads belonged to a process that died; whoever
meets it takes it away. Nothing waits for anybody: a hint that does not fit into a full pipe is lost, and the horizon
helps.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec

from turntake.buffer.engine.hints import HintChannel, read_hint
from turntake.buffer.sqlite.file import PRIVATE
from turntake.buffer.store import HORIZON_MS, Hint
from turntake.clock import Clock

# What is written to a pipe in one piece, on every system. A longer hint is sent as several.
MOST_BYTES = 512
READ_BYTES = 65_536  # what a pipe holds on Linux
UNFINISHED = ".new"


class SqliteHints(HintChannel):
    """Where there are no named pipes, there are no hints."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._folder = path.parent
        self._prefix = f"{path.name}-hints-"
        self._own = f"{self._prefix}{uuid4().hex[:12]}"
        self._clock = clock
        self._others: list[Path] = []
        self._look_at = 0

    def has_listeners(self, now: int) -> bool:
        """Whether anybody else listens, as far as the last look, a horizon ago at most, could tell."""
        if now >= self._look_at:
            self._look_at = now + HORIZON_MS
            self._others = self._listeners()
        return bool(self._others)

    async def publish(self, hint: Hint) -> None:
        self.send(hint)

    def send(self, hint: Hint) -> None:
        """Takes microseconds, and waits for nobody."""
        if self.has_listeners(self._clock.now()):
            lines = _lines(hint)
            self._others = [pipe for pipe in self._others if all(_write(pipe, line) for line in lines)]

    async def listen(self) -> AsyncIterator[Hint]:
        if not hasattr(os, "mkfifo"):
            return
        pipe = self._folder / self._own
        news: asyncio.Queue[bytes] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        reading, writing = _make(pipe)
        loop.add_reader(reading, lambda: news.put_nowait(os.read(reading, READ_BYTES)))
        try:
            while True:
                for line in (await news.get()).splitlines():
                    hint = read_hint(line)
                    if hint is not None:
                        yield hint
        finally:
            loop.remove_reader(reading)
            os.close(reading)
            os.close(writing)
            pipe.unlink(missing_ok=True)

    def _listeners(self) -> list[Path]:
        with suppress(OSError):
            names = [name for name in os.listdir(self._folder) if name.startswith(self._prefix)]
            return [self._folder / name for name in names if name != self._own and not name.endswith(UNFINISHED)]
        return []


def _make(pipe: Path) -> tuple[int, int]:
    """Its two ends. We hold one to write to as well, or the pipe would end whenever nobody else does.

    It gets its name once it can be read: one that cannot is taken for a dead process's.
    """
    unfinished = pipe.with_name(pipe.name + UNFINISHED)
    os.mkfifo(unfinished, PRIVATE)
    reading = os.open(unfinished, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(unfinished, os.O_WRONLY | os.O_NONBLOCK)
    unfinished.rename(pipe)
    return reading, writing


def _lines(hint: Hint) -> list[bytes]:
    """The hint, or its parts if it is long; of one that cannot be divided, the deadline is sent."""
    whole = msgspec.json.encode(hint) + b"\n"
    if len(whole) <= MOST_BYTES:
        return [whole]
    stopped, offered = len(hint.interrupted), len(hint.offered)
    if stopped + offered < 2:
        return [msgspec.json.encode(Hint(hint.due_at)) + b"\n"]
    first = Hint(hint.due_at, hint.interrupted[: stopped // 2], offered=hint.offered[: (offered + 1) // 2])
    second = Hint(hint.due_at, hint.interrupted[stopped // 2 :], offered=hint.offered[(offered + 1) // 2 :])
    return _lines(first) + _lines(second)


def _write(pipe: Path, line: bytes) -> bool:
    """Whether somebody reads it. A pipe that is full is read by somebody who is slow."""
    try:
        handle = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        with suppress(OSError):
            pipe.unlink()
        return False
    try:
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(handle, line)
    finally:
        os.close(handle)
    return True
