"""The URL of a SQLite store."""

from turntake.errors import ConfigurationError


def path_of(url: str) -> str:
    """The file behind `sqlite:///path`. Raises ConfigurationError."""
    path = url.removeprefix("sqlite:///")
    if path == url or not path or path == ":memory:":
        raise ConfigurationError("A SQLite store is written sqlite:///path/to/file.db; in memory, use memory://.")
    return path
