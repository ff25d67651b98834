"""What `turntake doctor` says about a PostgreSQL server. Everything is read in one transaction that cannot write."""

from collections.abc import AsyncIterator
from typing import Any

import psycopg
from psycopg import AsyncConnection, sql

from turntake.buffer.open import clock_findings
from turntake.buffer.postgres.pool import direct, reason
from turntake.buffer.postgres.schema import applied, pending
from turntake.buffer.postgres.url import options_of
from turntake.clock import Clock
from turntake.errors import TurntakeError
from turntake.finding import Finding, Level

OLDEST_VERSION = 130_000  # the first that knows autovacuum_vacuum_insert_scale_factor, which our tables set
MANY_DEAD_ROWS = 50_000  # below this, vacuum is merely about to come
LONG_TRANSACTION_MS = 300_000  # ours take milliseconds and a backup minutes; dead rows pile up meanwhile
CONNECTIONS_USED = 0.9  # of those the server allows; the last tenth goes quickly when workers are added
SKEW_MS = 1_000  # the horizon: a difference that nobody would notice is not worth a warning


async def examine(url: str, clock: Clock) -> AsyncIterator[Finding]:
    """One finding after the other, beginning with whether the server answers."""
    try:
        options = options_of(url)
        async with direct(options.conninfo) as connection:
            await connection.execute("BEGIN READ ONLY")
            yield _server(connection)
            yield await _schema(connection, options.schema)
            for part in (_writable, _durability, _dead_rows, _oldest, _connections):
                for finding in await part(connection, options.schema):
                    yield finding
            yield await _offset(connection, clock)
            for finding in await _noted_time(connection, options.schema):
                yield finding
    except TurntakeError as error:
        yield Finding("fail", "store", str(error))
    except psycopg.Error as error:
        yield Finding("fail", "store", f"PostgreSQL: {reason(error)}")


def _server(connection: AsyncConnection[Any]) -> Finding:
    version = connection.info.server_version
    text = f"PostgreSQL {version // 10_000}.{version % 10_000} at {connection.info.host}:{connection.info.port}"
    if version < OLDEST_VERSION:
        return Finding("fail", "store", f"{text}: too old, 13 is the oldest that works")
    return Finding("ok", "store", text)


async def _schema(connection: AsyncConnection[Any], schema: str) -> Finding:
    done = await applied(connection, schema)
    try:
        now = [migration.name for migration in pending(done)]
    except TurntakeError as error:
        return Finding("fail", "schema", str(error))
    if not done:
        return Finding("ok", "schema", f"{schema} will be created at the next start")
    later = [migration.name for migration in pending(done, is_finishing=True) if migration.name not in now]
    text = f"{schema} is at {done[-1]}"
    if now:
        text += f"; the next start runs {', '.join(now)}"
    if later:
        return Finding("warn", "schema", f"{text}; once no older release runs, finish the upgrade: {', '.join(later)}")
    return Finding("ok", "schema", text)


async def _writable(connection: AsyncConnection[Any], schema: str) -> list[Finding]:
    query = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'"
    ((is_standby, is_read_only),) = await _rows(connection, query)
    if is_standby:
        return [Finding("fail", "store", "this server is a standby and takes no writes; name the primary")]
    if is_read_only:
        return [Finding("fail", "store", "default_transaction_read_only is on, so nothing can be accepted")]
    return []


async def _durability(connection: AsyncConnection[Any], schema: str) -> list[Finding]:
    names = ("fsync", "full_page_writes", "synchronous_commit")
    settings = dict(await _rows(connection, "SELECT name, setting FROM pg_settings WHERE name = ANY (%s)", [*names]))
    off = [name for name in names if settings.get(name) == "off"]
    if off:
        text = f"{', '.join(off)} off: what was accepted may be lost when the server crashes"
        return [Finding("warn", "durability", text)]
    text = f"synchronous_commit {settings.get('synchronous_commit')}: what was accepted is on the server's disk"
    return [Finding("ok", "durability", text)]


async def _dead_rows(connection: AsyncConnection[Any], schema: str) -> list[Finding]:
    query = (
        "SELECT relname, n_live_tup, n_dead_tup, to_char(last_autovacuum, 'YYYY-MM-DD HH24:MI') "
        "FROM pg_stat_user_tables WHERE schemaname = %s AND relname <> ALL ('{migrations,clock,workers}') "
        "ORDER BY relname"
    )
    return [bloat(*row) for row in await _rows(connection, query, schema)]


def bloat(table: str, live: int, dead: int, vacuumed: str | None) -> Finding:
    """A table that holds more dead rows than living ones, and many, is not vacuumed often enough."""
    level: Level = "warn" if dead > MANY_DEAD_ROWS and dead > live else "ok"
    return Finding(level, "bloat", f"{table}: {live:,} rows, {dead:,} dead, last autovacuum {vacuumed or 'never'}")


async def _oldest(connection: AsyncConnection[Any], schema: str) -> list[Finding]:
    """A snapshot that stays open keeps every dead row of the database."""
    query = (
        "SELECT coalesce(max(age(backend_xmin)), 0), "
        "coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::bigint "
        "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    ((xids, seconds),) = await _rows(connection, query)
    text = f"the longest open transaction is {seconds:,} s old, the oldest snapshot {xids:,} transactions"
    if seconds * 1000 > LONG_TRANSACTION_MS:
        return [Finding("warn", "snapshots", f"{text}: dead rows pile up until it ends")]
    return [Finding("ok", "snapshots", text)]


async def _connections(connection: AsyncConnection[Any], schema: str) -> list[Finding]:
    query = "SELECT count(*), current_setting('max_connections')::int FROM pg_stat_activity WHERE backend_type = %s"
    ((used, most),) = await _rows(connection, query, "client backend")
    level: Level = "warn" if used > most * CONNECTIONS_USED else "ok"
    return [Finding(level, "connections", f"{used} of {most} in use")]


async def _offset(connection: AsyncConnection[Any], clock: Clock) -> Finding:
    ((server_at,),) = await _rows(connection, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
    ahead_ms = server_at - clock.now()
    text = f"the server's clock is {abs(ahead_ms):,} ms {'ahead of' if ahead_ms >= 0 else 'behind'} this machine's"
    if clock.is_followed and abs(ahead_ms) > SKEW_MS:
        return Finding("warn", "clock", f"{text}; turntake goes by the server's")
    return Finding("ok", "clock", text)


async def _noted_time(connection: AsyncConnection[Any], schema: str) -> list[Finding]:
    """A time that some process noted counts until the server's clock has caught up."""
    if not await applied(connection, schema):
        return []
    noted = sql.SQL("SELECT seen_at FROM {}.clock").format(sql.Identifier(schema)).as_string()
    now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    ((at,),), noted_at = await _rows(connection, now), await _rows(connection, noted)
    return clock_findings(at, noted_at[0][0] if noted_at else 0)


async def _rows(connection: AsyncConnection[Any], query: str, *parameters: object) -> list[Any]:
    return await (await connection.execute(query.encode(), parameters)).fetchall()
