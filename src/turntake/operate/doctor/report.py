"""Examines an installation before it serves. It opens what serving would open, and changes nothing."""

import asyncio
import http.client
import os
import platform
import socket
import stat
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from turntake.clock import DAY_MS, Clock
from turntake.errors import TurntakeError
from turntake.finding import Finding
from turntake.http.hosts import family_of, is_loopback, reachable
from turntake.operate.accounts import accounts, is_reached
from turntake.operate.doctor import stores
from turntake.operate.made_key import path_for
from turntake.operate.options.env_file import ENV_FILE
from turntake.operate.options.groups import Options
from turntake.operate.options.settings import env_of, without_password
from turntake.operate.weak_secrets import refuse_weak_secrets, weak_secrets

SQLITE_WANTED = (3, 51, 3)  # the first without the WAL-reset bug, which can corrupt a database
YEAR_2026 = 1_767_225_600_000  # no clock that is right shows less
ALL_POWERFUL = (
    f"{env_of('api_keys')}: each of these keys may do everything for every tenant, and to change one takes a restart; "
    "make keys with `turntake keys new`, give them out, then unset it"
)
PROBE_MS = 2_000  # a server of ours answers its health check in a few


async def examine(
    options: Options, environ: Mapping[str, str], clock: Clock, *, is_offline: bool = False
) -> AsyncIterator[Finding]:
    """All findings about a set-up whose options could be read, each as soon as it is made.

    Offline, it does not ask platforms whether they know us, and does not call the agent.
    """
    from turntake.operate.doctor import channels as examine_channels

    for finding in (*machine(clock), *configuration(options, environ)):
        yield finding
    async for finding in stores.examine(options.store, clock):
        yield finding
    found = agent(options)
    is_asked = found.level == "ok" and "://" in options.agent and not is_offline
    yield await agent_listens(options.agent) if is_asked else found
    for finding in access(options):
        yield finding
    async for finding in examine_channels.examine(options, is_offline=is_offline):
        yield finding


def machine(clock: Clock) -> Iterator[Finding]:
    """What does not depend on the options: versions and the clock."""
    import apsw

    yield Finding("ok", "turntake", f"{version('turntake')} on Python {platform.python_version()}, {platform.system()}")
    library = apsw.sqlite_lib_version()
    wanted = ".".join(map(str, SQLITE_WANTED))
    if tuple(map(int, library.split("."))) >= SQLITE_WANTED:
        yield Finding("ok", "sqlite", f"{library} ({wanted} or later is needed)")
    else:
        yield Finding("fail", "sqlite", f"{library} can lose committed data; pip install -U 'apsw>={wanted}'")
    installed_at = int(Path(__file__).stat().st_mtime * 1000)
    if clock.now() < max(YEAR_2026, installed_at - DAY_MS):
        yield Finding("fail", "clock", "it is behind; set the time, for example with timedatectl set-ntp true")
    else:
        yield Finding("ok", "clock", "plausible")


def configuration(options: Options, environ: Mapping[str, str]) -> Iterator[Finding]:
    """What was read, what of it was ignored, and whether others can read what is secret."""
    config = options.sources.config
    yield Finding("ok", "config", f"{config} read" if config else "no turntake.toml here; defaults")
    for warning in options.sources.warnings:
        yield Finding("warn", "environment", warning)
    if config and _is_open(config) and _has_password(options):
        yield Finding("warn", "config", f"everybody can read it, and it holds a password: chmod 600 {config}")
    filed = [s for s in options.sources.settings if options.sources.values[s.key].origin.endswith(f" in {ENV_FILE}")]
    if filed:
        yield Finding("ok", "config", f"{ENV_FILE} read")
    if _is_open(Path(ENV_FILE)) and any(setting.is_secret for setting in filed):
        yield Finding("warn", "secret", f"everybody can read {ENV_FILE}: chmod 600 {ENV_FILE}")
    for setting in options.sources.settings:
        path = environ.get(f"{setting.env}_FILE")
        if setting.is_secret and path and _is_open(Path(path)):
            yield Finding("warn", "secret", f"everybody can read {path}: chmod 600 {path}")


def agent(options: Options) -> Finding:
    """Whether the agent can be found; `agent_listens` says whether one behind a URL is there."""
    from turntake.operate.assemble import agent_of

    try:
        agent_of(options)
        return Finding("ok", "agent", f"{without_password(options.agent)} loads")
    except TurntakeError as error:
        return Finding("fail", "agent", str(error))


async def agent_listens(url: str) -> Finding:
    """Whether something accepts connections there. Nothing is sent: a request would be a turn to the agent.

    A warning at most: the agent may be started later, and turns wait for it.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    where = f"{host}:{port}"
    try:
        async with asyncio.timeout(PROBE_MS / 1_000):
            _, writer = await asyncio.open_connection(host, port, ssl=parts.scheme == "https" or None)
        writer.close()
        return Finding("ok", "agent", f"something listens at {where}")
    except TimeoutError:
        return Finding("warn", "agent", f"{where} does not answer within {PROBE_MS / 1_000:g} s: is it up?")
    except OSError as error:
        why = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else type(error).__name__
        return Finding("warn", "agent", f"nothing can be reached at {where} ({why}): start the agent there")


def access(options: Options) -> Iterator[Finding]:
    """Who gets in, and whether the port is free."""
    try:
        refuse_weak_secrets(options)
        yield _keys(options)
    except TurntakeError as error:
        yield Finding("fail", "access", str(error))
    else:
        for warning in weak_secrets(options):
            yield Finding("warn", "access", warning)
    if options.api_keys:
        yield Finding("warn", "access", ALL_POWERFUL)
    yield _port(options.host, options.port)


def _keys(options: Options) -> Finding:
    count = len(options.api_keys)
    if count:
        return Finding("ok", "access", f"{count} API key{'s' if count > 1 else ''} in {env_of('api_keys')}")
    if not is_loopback(options.host):
        text = f"{options.host} is for others too: it starts only if the store has an API key (turntake keys list)"
        return Finding("warn", "access", text)
    return Finding("ok", "access", _without_keys(options))


def _without_keys(options: Options) -> str:
    if not is_reached(options, accounts(options)):
        return f"only {options.host} gets in; once the store has an API key (turntake keys list), only with one"
    path = path_for(options.store)
    where = f"which is in {path}" if path.exists() else f"and keeps in {path}"
    key = f"the key that serve makes, {where}, or one of the store (turntake keys list)"
    return f"others reach it, so all but webhooks needs {key}"


def _port(host: str, port: int) -> Finding:
    try:
        with socket.create_server((host, port), family=family_of(host)):
            return Finding("ok", "port", f"{host}:{port} is free")
    except OSError as error:
        if is_turntake(host, port):
            return Finding("ok", "port", f"a turntake server answers on {host}:{port}")
        return Finding("fail", "port", f"{host}:{port} is taken or not ours ({error.strerror}); choose another --port")


def is_turntake(host: str, port: int) -> bool:
    """Whether a healthy server of ours answers there."""
    connection = http.client.HTTPConnection(reachable(host), port, timeout=PROBE_MS / 1_000)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _is_open(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _has_password(options: Options) -> bool:
    urls = [options.store, options.agent]
    for account in options.accounts:
        urls += [account.values[option.name] for option in account.plugin.options if not option.is_secret]
    return any(without_password(url) != url for url in urls)
