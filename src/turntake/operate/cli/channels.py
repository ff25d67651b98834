"""`turntake channels`: every channel and account, what each still needs, and where its webhooks go; or one's guide."""

from difflib import get_close_matches
from importlib.resources import files
from typing import Annotated, Any

from cyclopts import App, Parameter

from turntake.errors import ConfigurationError
from turntake.operate.accounts import Account, accounts, webhook_url
from turntake.operate.cli.flags import Json, Load, takes_settings
from turntake.operate.cli.output import clean, paint, say, say_json, table
from turntake.operate.options.groups import Options
from turntake.operate.options.settings import env_of

USES = {"verify": "to take webhooks", "reply": "to reply", "listen": "to listen (optional)"}
PUBLIC_URL = env_of("public_url")

app = App(
    name="channels",
    help_epilogue="""
It takes the flags of `turntake serve`, calls nobody, and exits with 0 whatever
it finds; `turntake doctor` also asks the platforms.

Examples:

    turntake channels                             as serve would start here
    turntake channels whatsapp                    how to set it up, step by step
    turntake channels --public-url https://x.org  the addresses to register
    turntake channels --slack-accounts eu         what a second account needs
    turntake channels --json                      for machines
""",
)


@app.default
@takes_settings
def channels(
    load: Load,
    name: Annotated[str | None, Parameter(help="A channel: print its guide, and what it still needs here.")] = None,
    /,
    *,
    json: Json = False,
) -> None:
    """List the channels: what each still needs, and the address for its webhooks."""
    options = load()
    known = accounts(options)
    if name is not None:
        known = _called(name, known)
    if json:
        return say_json([_described(account, options) for account in known])
    if name is not None:
        _say_guide(known[0])
    for line in table(
        ("CHANNEL", "STATUS", "WEBHOOK"),
        [(a.label, a.status.partition(":")[0], webhook_url(a, options)) for a in known],
    ):
        say(line)
    _say_lacks([account for account in known if account.is_configured] or known)
    _say_odd(known, options)
    if name is None:
        say("\nHow to set one up, step by step: turntake channels whatsapp")


def _called(name: str, known: list[Account]) -> list[Account]:
    """The accounts of one channel."""
    if found := [account for account in known if account.plugin.name == name]:
        return found
    names = list(dict.fromkeys(account.plugin.name for account in known))
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}."
    raise ConfigurationError(f"No channel is called {clean(name)}; {hint}")


def _say_guide(account: Account) -> None:
    """Its page, which lies beside its module under the channel's name, and the meaning of its variables."""
    plugin = account.plugin
    package = plugin.channel.__module__.rpartition(".")[0] if plugin.channel else ""
    if package and (guide := files(package).joinpath(f"{plugin.name}.md")).is_file():
        say(guide.read_text("utf-8"))
    rows = [(account.variables[option.name], option.sentence) for option in plugin.options]
    if rows:
        for line in table(("VARIABLE", "MEANING"), rows):
            say(line)
        say()


def page(account: Account) -> str:
    """The page that explains the channel, if it is one of ours."""
    channel = account.plugin.channel
    is_ours = channel is not None and channel.__module__.startswith("turntake.")
    return f"docs/channels/{account.plugin.name}.md" if is_ours else ""


def _described(account: Account, options: Options) -> dict[str, Any]:
    return {
        "channel": account.plugin.name,
        "account": account.name,
        "status": account.status,
        "webhookUrl": webhook_url(account, options),
        "missing": account.missing,
        "page": page(account),
    }


def _say_lacks(known: list[Account]) -> None:
    lacks = [
        (account.label, USES[use], ", ".join(account.missing[use]))
        for account in known
        for use in USES
        if use in account.missing
    ]
    if lacks:
        say()
        for line in table(("CHANNEL", "LACKS", "VARIABLES TO SET"), lacks):
            say(line)


def _say_odd(known: list[Account], options: Options) -> None:
    """What cannot work, what was set without effect, and what the addresses still need."""
    faults = [_fault(account) for account in known if account.fault]
    ignored = [paint("yellow", warning) for warning in options.sources.warnings]
    here = [] if options.public_url else [f"Platforms cannot call these addresses: set {PUBLIC_URL}."]
    for line in (*faults, *ignored, *here):
        say()
        say(line)


def _fault(account: Account) -> str:
    if account.lacks_extra:
        return f"{account.label} {account.status}"
    return paint("red", f"{account.label} is {account.status}")
