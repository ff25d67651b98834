"""`turntake keys`: API keys are made, listed and revoked, in the store that the settings name or at a server."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from cyclopts import App, Parameter

from turntake.api_keys import ApiKeys, keys_in
from turntake.buffer.open import open_store
from turntake.clock import SystemClock
from turntake.errors import ConfigurationError, TurntakeError
from turntake.http.keys import key_view, new_key_view
from turntake.operate.cli.connection import Key, connected, since
from turntake.operate.cli.flags import Config, Json, option, options, switch, tell_of_file
from turntake.operate.cli.output import clean, say, say_json, table
from turntake.operate.options.sources import load
from turntake.rules.api_keys import EVERY_SCOPE, SCOPES, Caller

PATH = "/v1/keys"
OPERATOR = Caller("turntake keys")
"""Whoever can open the store needs no key."""

Url = Annotated[str | None, option("A server to ask instead of the store that the settings name.", "URL")]
Scope = Annotated[list[str] | None, options("What it may do; repeat it for several.", "SCOPE")]
Tenant = Annotated[list[str] | None, options("Whose conversations it sees; repeat it for several. [all]", "TENANT")]

_SCOPES = "\n".join(f"    {scope:<20}{sentence}" for scope, sentence in SCOPES.items())

app = App(
    name="keys",
    help_epilogue=f"""
Every process of the installation knows within two seconds. The store keeps a
hash; the key itself is printed once.

Examples:

    turntake keys new crm --scope messages:write --tenant acme
    turntake keys new dashboard --scope conversations:read --scope events
    turntake keys new operator --all-scopes
    turntake keys list
    turntake keys revoke ID

Scopes:

{_SCOPES}
""",
)


@app.command(help_epilogue="")
def new(
    name: Annotated[str, Parameter(help="Whose key it is.")],
    /,
    *,
    scope: Scope = None,
    all_scopes: Annotated[bool, switch("It may do everything.")] = False,
    tenant: Tenant = None,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Make a key, and print it this once."""
    if all_scopes == bool(scope):
        raise ConfigurationError("What may it do? Give --scope, once or several times, or --all-scopes.")
    scopes = sorted(EVERY_SCOPE) if all_scopes else scope or []
    if url is not None:
        with connected(url, key, config) as client:
            made = client.post(PATH, {"name": name, "scopes": scopes, "tenants": tenant})
    else:

        async def make(keys: ApiKeys) -> Any:
            return new_key_view(*await keys.make(OPERATOR, name, scopes, tenant))

        made = _in_store(config, make)
    if json:
        return say_json(made)
    sys.stderr.write(f"Key {clean(made['id'])} for {clean(made['name'])}. Keep it now: it cannot be shown again.\n")
    say(made["key"])


@app.command(name="list", help_epilogue="")
def list_(*, url: Url = None, key: Key = None, config: Config = None, json: Json = False) -> None:
    """List the keys, the latest first, also those that were revoked of late."""
    if url is not None:
        with connected(url, key, config) as client:
            found = client.get(PATH)["keys"]
    else:

        async def list_all(keys: ApiKeys) -> Any:
            return [key_view(each) for each in keys.list(OPERATOR)]

        found = _in_store(config, list_all)
    if json:
        return say_json({"keys": found})
    if not found:
        say("No keys yet: turntake keys new NAME --scope SCOPE")
        return
    for line in table(("ID", "NAME", "MADE", "TENANTS", "SCOPES"), map(_row, found)):
        say(line)


@app.command(help_epilogue="")
def revoke(
    id: Annotated[str, Parameter(help="The key's id, as `turntake keys list` shows it.")],
    /,
    *,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> None:
    """Revoke a key: within two seconds it opens nothing any more."""
    if url is not None:
        with connected(url, key, config) as client:
            client.delete(f"{PATH}/{quote(id, safe='')}")
    else:

        async def end(keys: ApiKeys) -> Any:
            if await keys.revoke(OPERATOR, id) is None:
                raise TurntakeError(f"There is no key {clean(id)}; `turntake keys list` shows all with their ids.")

        _in_store(config, end)
    say(f"Revoked {clean(id)}.")


def _row(key: dict[str, Any]) -> tuple[object, ...]:
    clock = SystemClock()
    revoked = "" if key["revokedAt"] is None else f" (revoked {since(key['revokedAt'], clock)})"
    tenants = "all" if key["tenants"] is None else " ".join(key["tenants"])
    return key["id"], key["name"] + revoked, since(key["createdAt"], clock), tenants, " ".join(key["scopes"])


def _in_store(config: Path | None, act: Callable[[ApiKeys], Awaitable[Any]]) -> Any:
    """What `act` does with the keys of the store that the settings name, as JSON would have it."""
    loaded = load(config=config)
    tell_of_file(loaded)
    if loaded.store.startswith("memory:"):
        raise ConfigurationError("memory:// is kept by a running server alone: name it with --url.")

    async def run() -> Any:
        async with open_store(loaded.store, SystemClock()) as store:
            return await act(await keys_in(store))

    try:
        return msgspec.to_builtins(asyncio.run(run()))
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
