"""Adapters are found by name through entry points, ours by the same door as others'."""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from turntake.errors import ConfigurationError, MissingExtra

# Which of our extras brings a module.
EXTRAS = {"hiredis": "redis", "psycopg": "postgres", "psycopg_pool": "postgres", "redis": "redis"}


def load(group: str, name: str) -> Any:
    """The adapter registered as `name` in `turntake.<group>`."""
    registered = entry_points(group=f"turntake.{group}")
    for entry in registered:
        if entry.name == name:
            return _loaded(entry)
    known = ", ".join(sorted(entry.name for entry in registered)) or "none"
    raise ConfigurationError(f"There is no {group.rstrip('s')} called {name!r}; installed are: {known}.")


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except ImportError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise MissingExtra(extra) from error
