"""The statements of queries.sql by name, and how they are run."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Any

import apsw

from turntake.errors import StoreUnavailable

_NAMED = re.compile(r"^-- (\w+): [^\n]*\n(.*?)(?=^-- \w+: |\Z)", re.MULTILINE | re.DOTALL)
SQL: dict[str, str] = dict(_NAMED.findall((resources.files(__package__) / "queries.sql").read_text()))


def one(connection: apsw.Connection, name: str, *bindings: Any) -> Any:
    """The only row there can be, or None."""
    return connection.execute(SQL[name], bindings).fetchone()


def rows(connection: apsw.Connection, name: str, *bindings: Any) -> list[Any]:
    """All rows, read at once so that no statement stays open."""
    return connection.execute(SQL[name], bindings).fetchall()


def run(connection: apsw.Connection, name: str, *bindings: Any) -> None:
    """Carries the statement out."""
    connection.execute(SQL[name], bindings)


@contextmanager
def unavailable_on_error() -> Iterator[None]:
    """For reads; what fails while it writes is told by the commit thread."""
    try:
        yield
    except apsw.Error as error:
        raise StoreUnavailable(f"The SQLite file cannot be read ({error}).") from error
