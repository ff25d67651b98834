"""`turntake serve`: the options become a server that runs until it is told to stop."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from socket import socket
from types import FrameType
from typing import TYPE_CHECKING, Annotated

from cyclopts import App

from turntake.operate import logs
from turntake.operate.accounts import Account, channels_of, listeners_of, shared_secrets
from turntake.operate.assemble import Parts, assemble
from turntake.operate.channel_plugins import LISTEN
from turntake.operate.cli.flags import Load, switch, takes_settings
from turntake.operate.cli.output import paint, say
from turntake.operate.made_key import MadeKeyFile, make_key
from turntake.operate.options.groups import Options
from turntake.operate.options.settings import without_password
from turntake.operate.weak_secrets import refuse_weak_secrets, weak_secrets
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
    turntake serve --agent my_app:answer --reload   while you write it
    turntake serve --agent https://host/agent   your own service
    turntake serve --rules-silence-ms 2500      patience with slow writers
    TURNTAKE_API_KEYS=$(openssl rand -hex 32) turntake serve --host 0.0.0.0

Every setting is a flag, a TURNTAKE_… variable and a line in turntake.toml:
`turntake doctor` lists them all, `turntake init` writes the file.
""",
)


@app.default
@takes_settings
def serve(
    load: Load,
    *,
    reload: Annotated[bool, switch("Start again whenever a Python file or the settings here change.")] = False,
) -> int:
    """Run the server: accept messages, collect them into turns, have them answered.

    It stops politely on Ctrl-C or SIGTERM: answers that are under way may finish, the rest is handed back. A second
    Ctrl-C or SIGTERM hands everything back at once.
    """
    if reload:
        from turntake.operate.cli.reload import keep_serving

        return keep_serving()
    from turntake.http.access import refuse_open_bind
    from turntake.http.connections import raise_file_limit
    from turntake.http.server import listen, new_loop, tune

    options = load()
    logs.configure(options.log)
    refuse_open_bind(options.host, options.api_keys)
    refuse_weak_secrets(options)
    parts = assemble(options)
    bound = listen(options.host, options.port)
    files = raise_file_limit()
    made = None if options.api_keys else make_key(options.store)
    tune()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(options, parts, bound, made, files))
    return 0


async def _serve(options: Options, parts: Parts, bound: socket, made: MadeKeyFile | None, files: int | None) -> None:
    from turntake.accept.listening import listening
    from turntake.http.connections import Limits
    from turntake.http.server import Server, url_of

    app = parts.turns.asgi(
        api_keys=options.api_keys,
        made_key=made.key if made else "",
        max_body_bytes=options.http.body_bytes,
        receive_ms=options.http.receive_ms,
        channels=channels_of(parts.accounts),
        public_url=options.public_url,
        max_webhook_bytes=options.webhooks.body_bytes,
        groups=options.webhooks.groups,
        oldest_ms=options.webhooks.oldest_ms,
        delivery=options.webhooks.delivery,
    )
    server = Server(
        app,
        options.worker.shutdown_ms,
        lambda: _print_banner(options, parts, url_of(bound), made),
        app.state.events.close,
        on_drain=lambda: _drain(parts),
        drain_ms=options.http.drain_ms,
        limits=Limits(options.http, parts.turns.clock, files),
    )
    try:
        # Entered here and not by the app, so that a store that does not open is one line and not a traceback.
        with ExitStack() as until_stopped:
            async with parts.turns, listening(_listeners(parts), app.state.intake, parts.turns.clock):
                await server.serve([bound])
                until_stopped.enter_context(_hurried_by_signals(parts))
                if parts.turns.is_answering:
                    log.info(
                        "Waiting for answers under way",
                        extra={"action": "stop", "at_most_ms": options.worker.shutdown_ms},
                    )
    finally:
        bound.close()
        await parts.aclose()
    log.info("Stopped", extra={"action": "stop"})


@contextmanager
def _hurried_by_signals(parts: Parts) -> Iterator[None]:
    """While the last answers finish, another signal is no reason to break off: it hands back what is left at once."""
    loop = asyncio.get_running_loop()

    def hurry(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(parts.turns.hurry)

    before = {number: signal.signal(number, hurry) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listeners(parts: Parts) -> "Listeners":
    return {} if parts.turns.role == "work" else listeners_of(parts.accounts)


def _drain(parts: Parts) -> None:
    log.info("Stopping", extra={"action": "stop", "role": parts.turns.role})
    parts.turns.drain()


def _print_banner(options: Options, parts: Parts, url: str, made: MadeKeyFile | None) -> None:
    """Says what is served where: in lines for a person, or else in a line of the log; warnings come first."""
    is_watched = sys.stdout.isatty()
    odd = (*options.sources.warnings, *weak_secrets(options), *_in_vain(options, parts), *_risky(options, parts))
    for warning in odd:
        log.warning(warning, extra={"action": "start"})
    for note in _unset(options, parts):
        # Nothing is wrong: somebody who tries it out for the first time should not have to read it first.
        log.log(logging.DEBUG if is_watched else logging.INFO, note, extra={"action": "start"})
    _tell_of_channels(parts.accounts, is_watched)
    store = "(that of the agent's module)" if parts.agent.turns else without_password(options.store)
    role, agent = parts.turns.role, without_password(options.agent)
    config = {"config": str(options.sources.config)} if options.sources.config else {}
    if is_watched:
        facts = {"store": store, "agent": agent, "role": f"{role}: {ROLES[role]}", **_outside(options, parts), **config}
        if made:
            facts["page"] = f"{url}/?key={made.key}" if made.is_new else f"{url}/ (its key is in {made.path})"
        key = "KEY" if options.api_keys else f"$(cat {made.path})" if made and _is_reached(options, parts) else ""
        _print_facts(url, facts, [] if role == "work" else _trials(url, role, key))
    else:
        where = {"url": url, "role": role, "store": store, "agent": agent, **config}
        where |= {"key_file": str(made.path)} if made and made.path else {}
        log.info("Listening", extra={"action": "start", **where})


def _outside(options: Options, parts: Parts) -> dict[str, str]:
    """For the banner: where others reach it, and who is connected."""
    facts = {"public": without_password(options.public_url)} if options.public_url else {}
    if any(account.is_configured for account in parts.accounts):
        facts["chats"] = ", ".join(f"{a.label} ({a.status})" for a in parts.accounts if a.is_configured)
    elif parts.turns.role != "work":
        facts["chats"] = "none configured, so every webhook is refused; see `turntake channels`"
    return facts


def _tell_of_channels(accounts: list[Account], is_watched: bool) -> None:
    """One warning for each channel that is configured in part, one line for all that are not configured at all.

    At a terminal the banner has that line, in short.
    """
    for account in accounts:
        if account.is_configured and account.status != "ready":
            log.warning("A channel is not ready", extra=_channel_facts(account))
    for sentence in shared_secrets(accounts):
        log.warning(sentence, extra={"action": "start"})
    idle = ", ".join(account.path for account in accounts if not account.is_configured)
    if idle and not is_watched:
        log.info("Not configured, so every webhook is refused", extra={"action": "start", "webhooks": idle})


def _channel_facts(account: Account) -> dict[str, str]:
    missing = ", ".join(name for use, names in account.missing.items() if use != LISTEN for name in names)
    return {"action": "start", "channel": account.label, "status": account.status, "missing": missing}


def _in_vain(options: Options, parts: Parts) -> Iterator[str]:
    """What was set without effect, or will not last."""
    if parts.ignored:
        yield f"{options.agent} brings its own store and rules; ignored: {', '.join(parts.ignored)}."
    if options.store.startswith("memory:") and not parts.agent.turns:
        yield "memory:// forgets everything when this server stops."


def _risky(options: Options, parts: Parts) -> Iterator[str]:
    """What something that was set needs, and is not set."""
    missing = [
        f"TURNTAKE_PUBLIC_URL ({title} signs it, so its webhooks are refused)"
        for title in dict.fromkeys(_signing(parts.accounts))
        if not options.public_url
    ]
    if "://" in options.agent and not options.agent_secret:
        missing.append("TURNTAKE_AGENT_SECRET (requests to the agent are not signed)")
    if missing:
        yield f"Not set: {', '.join(missing)}."


def _unset(options: Options, parts: Parts) -> Iterator[str]:
    """What nobody needs to set to try it out."""
    optional = [(f"TURNTAKE_API_KEYS ({_who_gets_in(options, parts)})", options.api_keys)]
    optional += [
        (f"{variable} (replies to the {channel} channel are kept, not posted)", (url,) if url else ())
        for channel, variable, url in _callbacks(parts.accounts)
    ]
    missing = [name for name, values in optional if not values]
    if missing:
        yield f"Optional, and not set: {', '.join(missing)}."


def _who_gets_in(options: Options, parts: Parts) -> str:
    """What it means that there are no API keys."""
    if _is_reached(options, parts):
        return "others reach this server, so all but webhooks needs the key that it made"
    return "anybody on this machine gets in"


def _is_reached(options: Options, parts: Parts) -> bool:
    """Whether anything says that others reach this server."""
    return bool(options.public_url) or any(a.channel and a.channel.has_secret for a in parts.accounts)


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


def _trials(url: str, role: Role, key: str) -> list[str]:
    """Lines to try. Only a process that works on turns tells of answers, so only there is one to be followed.

    `key` is what to write for the API key, if there must be one; `turntake send` finds one that was made.
    """
    body = '{"conversation": "ann", "id": "1", "text": "hello"}'
    follow = "--follow " if role == "all" else ""
    where = "" if url == Options().own_url else f"--url {url} "
    flag = f"--key {key} " if key == "KEY" else ""
    header = f' -H "authorization: Bearer {key}"' if key else ""
    return [
        f'turntake send {follow}{where}{flag}"hi" "are you open tomorrow?"',
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
    say(
        paint(
            "dim",
            "  Ctrl-C stops it."
            if _is_in_foreground()
            else f"  It runs in the background: kill {os.getpid()} stops it.",
        )
    )
    sys.stdout.flush()


def _is_in_foreground() -> bool:
    """Whether Ctrl-C would reach this process; a job that a shell started with `&` does not get it."""
    try:
        return os.tcgetpgrp(sys.stdout.fileno()) == os.getpgrp()
    except OSError:  # another terminal than ours, or none
        return True
