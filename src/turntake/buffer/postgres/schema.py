"""The schema and its numbered migrations.

`pre_` ones only add: a new release runs them when it starts, while older ones still run. `post_` ones take away what
no release needs any more, and wait until an operator says that the older ones are gone.
"""

from importlib import resources
from typing import Any, NamedTuple

from psycopg import AsyncConnection, sql

from turntake.errors import ConfigurationError

MIGRATIONS = resources.files(__package__) / "migrations"
# Not to_regclass(), which remembers in a session what was not there before somebody else's migration.
_TABLE = (
    b"SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    b"WHERE n.nspname = %s AND c.relname = 'migrations'"
)
_LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('turntake migrations of ' || %s, 0))"


class Migration(NamedTuple):
    """`name` is the file's, as in `0001_pre_conversations`."""

    name: str
    text: str

    @property
    def is_post(self) -> bool:
        return is_post(self.name)


def is_post(name: str) -> bool:
    return name.split("_")[1] == "post"


def migrations() -> list[Migration]:
    """All there are, in order."""
    files = sorted((entry for entry in MIGRATIONS.iterdir() if entry.name.endswith(".sql")), key=lambda e: e.name)
    return [Migration(entry.name.removesuffix(".sql"), entry.read_text()) for entry in files]


async def applied(connection: AsyncConnection[Any], schema: str) -> list[str]:
    """The names of those that were run here; changes nothing."""
    if not await _is_there(connection, _TABLE, schema):
        return []
    query = sql.SQL("SELECT name FROM {}.migrations ORDER BY name").format(sql.Identifier(schema))
    return [name for (name,) in await (await connection.execute(query)).fetchall()]


def pending(done: list[str], *, is_finishing: bool = False) -> list[Migration]:
    """What is to run now. In a new schema that is everything, since no older release can be at work there.

    One that a later release took something away from is refused, not guessed at; what it only added does no harm.
    """
    known = migrations()
    unknown = [name for name in done if is_post(name) and name not in {migration.name for migration in known}]
    if unknown:
        raise ConfigurationError(f"The database was upgraded to the end ({unknown[-1]}): install a newer turntake.")
    waiting = [migration for migration in known if migration.name not in done]
    return [migration for migration in waiting if not done or is_finishing or not migration.is_post]


async def migrate(connection: AsyncConnection[Any], schema: str, *, is_finishing: bool = False) -> list[str]:
    """Brings the schema up to date, all of it or nothing; returns what was run. Others who start wait meanwhile."""
    if not pending(await applied(connection, schema), is_finishing=is_finishing):
        return []
    async with connection.transaction():
        await connection.execute(_LOCK, (schema,))
        todo = pending(await applied(connection, schema), is_finishing=is_finishing)
        await _make_schema(connection, schema)
        for migration in todo:
            await connection.execute(migration.text.encode())
            await connection.execute("INSERT INTO migrations (name) VALUES (%s)", (migration.name,))
    return [migration.name for migration in todo]


async def _make_schema(connection: AsyncConnection[Any], schema: str) -> None:
    """Someone who may not make schemas can still use one that was made for them."""
    name = sql.Identifier(schema)
    if not await _is_there(connection, b"SELECT FROM pg_namespace WHERE nspname = %s", schema):
        await connection.execute(sql.SQL("CREATE SCHEMA {}").format(name))
    await connection.execute(sql.SQL("SET LOCAL search_path = {}").format(name))
    await connection.execute("CREATE TABLE IF NOT EXISTS migrations (name text PRIMARY KEY)")


async def _is_there(connection: AsyncConnection[Any], query: bytes, schema: str) -> bool:
    return await (await connection.execute(query, (schema,))).fetchone() is not None
