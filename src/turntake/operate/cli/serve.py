"""`turntake serve`: the options become a server that runs until it is told to stop."""

import asyncio
import logging
import sys
from collections.abc import Iterator, Mapping
from socket import socket
from typing import TYPE_CHECKING

from cyclopts import App

from turntake.operate import logs
from turntake.operate.accounts import Account, channels_of, listeners_of
from turntake.operate.assemble import Parts, assemble
from turntake.operate.channel_plugins import LISTEN
from turntake.operate.cli.flags import Load, takes_settings
from turntake.operate.cli.output import paint, say
from turntake.operate.options.groups import Options
from turntake.operate.options.settings import without_password
from turntake.service import Role

if TYPE_CHECKING:
    from turntake.accept.listening import Listeners

log = logging.getLogger("turntake")

ROLES: Mapping[Role, str] = {
    "all": "accepts messages and works on turns",
    "accept": "only accepts messages; turns need a process with --role work",
    "work": "only works on turns; messages go to a process with --role accept",
}

app = App(
    name="serve",
    help_epilogue="""
Examples:

    turntake serve                              keeps turntake.db here, echoes
    turntake serve --agent my_app:answer        your own async def answer(turn)
    turntake serve --agent https://host/agent   your own service
    turntake serve --rules-silence-ms 2500      patience with slow writers
    TURNTAKE_API_KEYS=change-me turntake serve --host 0.0.0.0

Every setting is a flag, a TURNTAKE_… variable and a line in turntake.toml:
`turntake doctor` lists them all, `turntake init` writes the file.
""",
)


@app.default
@takes_settings
def serve(load: Load) -> None:
    """Run the server: accept messages, collect them into turns, have them answered.

    It stops politely on Ctrl-C or SIGTERM: answers that are under way may finish, the rest is handed back.
    """
    from turntake.http.access import refuse_open_bind
    from turntake.http.server import listen, new_loop, tune

    options = load()
    logs.configure(options.log)
    refuse_open_bind(options.host, options.api_keys)
    parts = assemble(options)
    bound = listen(options.host, options.port)
    tune()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(options, parts, bound))


async def _serve(options: Options, parts: Parts, bound: socket) -> None:
    from turntake.accept.listening import listening
    from turntake.http.server import Server, url_of

    app = parts.turns.asgi(
        api_keys=options.api_keys,
        max_body_bytes=options.http.body_bytes,
        receive_ms=options.http.receive_ms,
        channels=channels_of(parts.accounts),
        public_url=options.public_url,
        max_webhook_bytes=options.webhooks.body_bytes,
        groups=options.webhooks.groups,
    )
    server = Server(
        app,
        options.worker.shutdown_ms,
        lambda: _print_banner(options, parts, url_of(bound)),
        app.state.events.close,
        on_drain=lambda: _drain(parts),
        drain_ms=options.http.drain_ms,
    )
    try:
        # Entered here and not by the app, so that a store that does not open is one line and not a traceback.
        async with parts.turns, listening(_listeners(parts), app.state.intake, parts.turns.clock):
            await server.serve([bound])
    finally:
        bound.close()
        await parts.aclose()
    log.info("Stopped", extra={"action": "stop"})


def _listeners(parts: Parts) -> "Listeners":
    return {} if parts.turns.role == "work" else listeners_of(parts.accounts)


def _drain(parts: Parts) -> None:
    log.info("Stopping", extra={"action": "stop", "role": parts.turns.role})
    parts.turns.drain()


def _print_banner(options: Options, parts: Parts, url: str) -> None:
    """Says what is served where: in lines for a person, or else in a line of the log; warnings come first."""
    for warning in (*options.sources.warnings, *_unset(options, parts)):
        log.warning(warning, extra={"action": "start"})
    _tell_of_channels(parts.accounts)
    store = "(that of the agent's module)" if parts.agent.turns else without_password(options.store)
    role, agent = parts.turns.role, without_password(options.agent)
    if sys.stdout.isatty():
        facts = {"store": store, "agent": agent}
        facts["role"] = f"{role}: {ROLES[role]}"
        if options.public_url:
            facts["public"] = options.public_url
        if any(account.is_configured for account in parts.accounts):
            facts["chats"] = ", ".join(f"{a.label} ({a.status})" for a in parts.accounts if a.is_configured)
        _print_facts(url, facts, [] if role == "work" else _trials(url, role, bool(options.api_keys)))
    else:
        log.info("Listening", extra={"action": "start", "url": url, "role": role, "store": store, "agent": agent})


def _tell_of_channels(accounts: list[Account]) -> None:
    """One warning for each channel that is configured in part, one line for all that are not configured at all."""
    for account in accounts:
        if account.is_configured and account.status != "ready":
            log.warning("A channel is not ready", extra=_channel_facts(account))
    idle = ", ".join(account.path for account in accounts if not account.is_configured)
    if idle:
        log.info("Not configured, so every webhook is refused", extra={"action": "start", "webhooks": idle})


def _channel_facts(account: Account) -> dict[str, str]:
    missing = ", ".join(name for use, names in account.missing.items() if use != LISTEN for name in names)
    return {"action": "start", "channel": account.label, "status": account.status, "missing": missing}


def _unset(options: Options, parts: Parts) -> list[str]:
    """One line for each thing that was set without effect, and one for all that is optional and not set."""
    vain = ", ".join(parts.ignored)
    lines = [f"{options.agent} brings its own store and rules; ignored: {vain}."] if vain else []
    if options.public_url and not options.api_keys:
        lines.append("A public address and no TURNTAKE_API_KEYS: let your proxy or tunnel forward /webhooks/ only.")
    if options.store.startswith("memory:") and not parts.agent.turns:
        lines.append("memory:// forgets everything when this server stops.")
    optional = (
        ("TURNTAKE_API_KEYS (anybody on this machine gets in)", options.api_keys),
        (
            "TURNTAKE_AGENT_SECRET (requests to the agent are not signed)",
            options.agent_secret or "://" not in options.agent,
        ),
        *(
            (f"TURNTAKE_PUBLIC_URL ({title} signs it, so its webhooks are refused)", options.public_url)
            for title in dict.fromkeys(_signing(parts.accounts))
        ),
        *(
            (f"{variable} (replies to the {channel} channel are kept, not posted)", url)
            for channel, variable, url in _callbacks(parts.accounts)
        ),
    )
    missing = [name for name, is_there in optional if not is_there]
    return [*lines, f"Not set: {', '.join(missing)}."] if missing else lines


def _signing(accounts: list[Account]) -> Iterator[str]:
    """The platforms in use that sign the address they call."""
    for account in accounts:
        if account.is_configured and account.receives and account.channel and account.channel.needs.signed_url:
            yield account.plugin.title


def _callbacks(accounts: list[Account]) -> Iterator[tuple[str, str, str]]:
    """The channels whose answers are posted to a URL, each with the variable of that URL and its value."""
    for account in accounts:
        if account.channel and account.channel.callback and not account.name:
            url = account.channel.callback.url
            yield account.plugin.name, account.variables[url], account.values[url]


def _trials(url: str, role: Role, has_keys: bool) -> list[str]:
    """Lines to try. Only a process that works on turns tells of answers, so only there is one to be followed."""
    body = '{"conversation": "ann", "id": "1", "text": "hello"}'
    follow = "--follow " if role == "all" else ""
    where = "" if url == Options().own_url else f"--url {url} "
    key = "--key KEY " if has_keys else ""
    header = " -H 'authorization: Bearer KEY'" if has_keys else ""
    return [
        f'turntake send {follow}{where}{key}"hi" "are you open tomorrow?"',
        f"curl {url}/v1/messages{header} -H 'content-type: application/json' \\",
        f"  -d '{body}'",
    ]


def _print_facts(url: str, facts: dict[str, str], trials: list[str]) -> None:
    say()
    say(f"  {paint('bold', 'turntake')} is listening on {paint('cyan', url)}")
    for name, value in facts.items():
        say(f"  {name:<6} {value}")
    say()
    if trials:
        say("  Try it from a second terminal:")
        for line in trials:
            say(f"    {line}")
        say()
    say(paint("dim", "  Ctrl-C stops it."))
    sys.stdout.flush()
