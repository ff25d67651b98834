"""What `turntake serve` says at its start: warnings, then what is served where, to a person or to the log."""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import which

from turntake.argument_checks import Role
from turntake.http.hosts import reachable
from turntake.operate.accounts import Account, is_reached, shared_secrets
from turntake.operate.assemble import Parts
from turntake.operate.channel_plugins import LISTEN
from turntake.operate.cli.output import paint, say
from turntake.operate.made_key import MadeKeyFile
from turntake.operate.options.groups import Options
from turntake.operate.options.settings import without_password
from turntake.operate.weak_secrets import weak_secrets

log = logging.getLogger("turntake")

ROLES: Mapping[Role, str] = {
    "all": "accepts messages and works on turns",
    "accept": "only accepts messages; turns need a process with --role work",
    "work": "only works on turns; messages go to a process with --role accept",
}


def print_banner(options: Options, parts: Parts, url: str, made: MadeKeyFile | None) -> None:
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
    listens_everywhere = reachable(options.host) != options.host
    if is_watched:
        facts = {"host": f"{options.host}, which is every address of this machine"} if listens_everywhere else {}
        facts |= {"store": store, "agent": agent, "role": f"{role}: {ROLES[role]}", **_outside(options, parts)}
        facts |= config
        if made:
            facts["page"] = f"{url}/?key={made.key}" if made.is_new else f"{url}/ (its key is in {made.path})"
        needs_key = parts.turns.keys.is_needed or is_reached(options, parts.accounts)
        key = "KEY" if options.api_keys else f"$(cat {made.path})" if made and needs_key else ""
        _print_facts(url, facts, [] if role == "work" else _trials(url, role, key))
    else:
        # `url` is how this machine reaches it; only `host` says that others do too.
        where = {"url": url, **({"host": options.host} if listens_everywhere else {})}
        where |= {"role": role, "store": store, "agent": agent, **config}
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
    has_keys = bool(options.api_keys) or parts.turns.keys.is_needed
    optional = [(f"TURNTAKE_API_KEYS ({_who_gets_in(options, parts)})", has_keys)]
    optional += [
        (f"{variable} (replies to the {channel} channel are kept, not posted)", bool(url))
        for channel, variable, url in _callbacks(parts.accounts)
    ]
    missing = [name for name, is_set in optional if not is_set]
    if missing:
        yield f"Optional, and not set: {', '.join(missing)}."


def _who_gets_in(options: Options, parts: Parts) -> str:
    """What it means that there are no API keys."""
    if is_reached(options, parts.accounts):
        return "others reach this server, so all but webhooks needs the key that it made"
    return "anybody on this machine gets in"


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
        f'{_command()} send {follow}{where}{flag}"hi" "are you open tomorrow?"',
        f"curl {url}/v1/messages{header} -H 'content-type: application/json' \\",
        f"  -d '{body}'",
    ]


def _command() -> str:
    """How to call us from a shell like the one that did: `make serve` puts no `turntake` on the path."""
    if which("turntake"):
        return "turntake"
    called = Path(sys.argv[0])
    return str(called) if called.name == "turntake" else f"{sys.executable} -m turntake"


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
