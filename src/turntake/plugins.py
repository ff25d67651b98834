"""Adapters are found by name through entry points, ours by the same door as others'."""

from importlib.metadata import entry_points
from typing import Any

from turntake.errors import ConfigurationError


def load(group: str, name: str) -> Any:
    """The adapter registered as `name` in `turntake.<group>`."""
    registered = entry_points(group=f"turntake.{group}")
    for entry in registered:
        if entry.name == name:
            return entry.load()
    known = ", ".join(sorted(entry.name for entry in registered)) or "none"
    raise ConfigurationError(f"There is no {group.rstrip('s')} called {name!r}; installed are: {known}.")
