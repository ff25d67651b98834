"""Adapters are found by name through entry points, ours by the same door as others'."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from turntake.errors import ConfigurationError, MissingExtra

# Which of our extras brings a store's module.
EXTRAS = {
    "hiredis": "redis",
    "psycopg": "postgres",
    "psycopg_pool": "postgres",
    "redis": "redis",
}

# Two letters that are missing or wrong in a name of eight; a name of one's own that is less alike is no mistake.
ALIKE = 0.75


def names(group: str) -> tuple[str, ...]:
    """What is registered in `turntake.<group>`; nothing is imported."""
    return _names(entry_points(group=f"turntake.{group}"))


def probable_typo(group: str, name: str) -> str:
    """What to say about a name that nothing has but that looks like one that something has; "" of any other name."""
    known = names(group)
    near = get_close_matches(name.lower(), known, n=1, cutoff=ALIKE)
    if name in known or not near:
        return ""
    return f"there is no {group.rstrip('s')} of that name; did you mean {near[0]}?"


def load(group: str, name: str) -> Any:
    """The adapter registered as `name` in `turntake.<group>`."""
    registered = entry_points(group=f"turntake.{group}")
    for entry in registered:
        if entry.name == name:
            return _loaded(entry)
    known = _names(registered)
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"installed are: {', '.join(known) or 'none'}."
    raise ConfigurationError(f"There is no {group.rstrip('s')} called {name!r}; {hint}")


def load_all(group: str) -> dict[str, Any]:
    """Every adapter in `turntake.<group>` by name. One that cannot be imported is represented by the exception."""
    found: dict[str, Any] = {}
    for entry in sorted(entry_points(group=f"turntake.{group}"), key=lambda entry: entry.name):
        if entry.name not in found:
            found[entry.name] = _loaded_or_why(entry)
    return found


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around an adapter's imports: if a library is missing, MissingExtra names the extra that brings it."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(name) from error


def load_class(reference: str) -> Any:
    """The class that `package.module:Class` names, imported now."""
    return EntryPoint("", reference, "").load()


def _names(registered: Iterable[EntryPoint]) -> tuple[str, ...]:
    return tuple(sorted({entry.name for entry in registered}))


def _loaded_or_why(entry: EntryPoint) -> Any:
    # Whatever a stranger's module raises while it is imported, it is that module's trouble alone.
    try:
        return _loaded(entry)
    except Exception as error:
        return error


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except ImportError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise MissingExtra(extra) from error
