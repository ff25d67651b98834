"""The SQLite store: the engine on a SQLite file."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

from turntake.buffer.engine.store import CasStore
from turntake.buffer.open import Examined
from turntake.buffer.sqlite.backend import SqliteBackend
from turntake.buffer.sqlite.examine import examine
from turntake.clock import Clock
from turntake.errors import ConfigurationError
from turntake.finding import Finding


class SqliteStore(CasStore, Examined):
    """Opened and closed by `async with`; several processes of one machine may share the file."""

    backend: SqliteBackend

    def __init__(self, path: str, clock: Clock) -> None:
        super().__init__(SqliteBackend(path, clock), clock)
        self.path = path

    @classmethod
    def open(cls, url: str, clock: Clock) -> Self:
        """`sqlite:///turntake.db` is relative to the working directory, `sqlite:////var/lib/t.db` is absolute."""
        return cls(path_of(url), clock)

    @classmethod
    def examine(cls, url: str, clock: Clock) -> AsyncIterator[Finding]:
        return examine(Path(path_of(url)).absolute())


def path_of(url: str) -> str:
    path = url.removeprefix("sqlite:///")
    if path == url or not path or path == ":memory:":
        raise ConfigurationError("A SQLite store is written sqlite:///path/to/file.db; in memory, use memory://.")
    return path
