"""`turntake channels`: every channel and account, what each still needs, and where its webhooks go."""

from typing import Any

from cyclopts import App

from turntake.operate.accounts import Account, accounts, webhook_url
from turntake.operate.cli.flags import Json, Load, takes_settings
from turntake.operate.cli.output import paint, say, say_json, table
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
    turntake channels --public-url https://x.org  the addresses to register
    turntake channels --slack-accounts eu         what a second account needs
    turntake channels --json                      for machines
""",
)


@app.default
@takes_settings
def channels(load: Load, *, json: Json = False) -> None:
    """List the channels: what each still needs, and the address for its webhooks."""
    options = load()
    known = accounts(options)
    if json:
        return say_json([_described(account, options) for account in known])
    for line in table(
        ("CHANNEL", "STATUS", "WEBHOOK", "PAGE"),
        [(a.label, a.status.partition(":")[0], webhook_url(a, options), page(a)) for a in known],
    ):
        say(line)
    _say_lacks([account for account in known if account.is_configured] or known)
    _say_odd(known, options)


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
