"""The reference pages, made from the settings and from every command's own help.

python -m turntake.operate.cli.reference settings > docs/reference/settings.md
python -m turntake.operate.cli.reference cli > docs/reference/cli.md
"""

import io
import sys
from itertools import groupby

from cyclopts import App

from turntake.operate.cli import COMMANDS, build
from turntake.operate.options.catalogue import catalogue
from turntake.operate.options.settings import Setting, allowed, shown

WIDTH = 90
PARTS = {
    "keys": ("new", "list", "revoke"),
    "letters": ("list", "show", "retry", "discard"),
    "rules": ("get", "set", "delete", "history", "rollback", "explain"),
    "turns": ("list", "show"),
}

_SETTINGS_HEAD = """# Settings

A value comes from the first of: a flag of `turntake serve`, the environment, the file `.env` in this folder,
`turntake.toml` (or the file that `--config` names), the preset that `[rules] preset` names, the default.
`turntake doctor` shows what is set and where it came from, with `--all` every value; `turntake init` writes a
commented `turntake.toml`.

In `.env` a line is `TURNTAKE_PORT=9000`; quotes, `export ` and ` # comments` are understood, names of other
programs are left alone, and a file that others may write is ignored.

An empty variable counts as not set. Secrets are read from the environment or `.env`, or from the file that the
same name with `_FILE` added points to, and never from `turntake.toml`. An unknown name in `turntake.toml` is an
error, an unknown `TURNTAKE_…` variable a warning.

Every installed channel is a section, others' plug-ins too. A second account of a channel gets a name and settings of
its own, and shares none with the first: after `[whatsapp] accounts = ["sales"]`, its secret is
`TURNTAKE_WHATSAPP_SALES_APP_SECRET`, what is not a secret may stand under `[whatsapp.sales]`, and its webhooks go to
`/webhooks/whatsapp/sales`. `turntake channels` lists all of them and what each still needs.

Every rule, and a preset, may also be set for less than everybody, in `turntake.toml` only: under
`[rules.platform.whatsapp]`, `[rules.tenant.acme]`, `[rules.agent.sales]` or
`[rules.conversation."acme:whatsapp:106540352242922:4912345"]`. Each says only what it overrides, and the more specific
one counts: `[rules]` < platform < tenant < agent < conversation. Rules that are set while the server runs count more
than those for the same scope here.
"""
_CLI_HEAD = """# The command line

Errors are one line on standard error. Exit codes: 0 all is well, 1 it failed, 2 the command or a setting
is wrong, 130 interrupted.
"""
_MADE_BY = "\n<!-- Generated: python -m turntake.operate.cli.reference {page} > docs/reference/{page}.md -->\n"


def settings() -> str:
    """docs/reference/settings.md"""
    parts = [_SETTINGS_HEAD, _MADE_BY.format(page="settings")]
    for section, members in groupby(catalogue().settings, key=lambda setting: setting.section):
        parts.append(f"\n## {f'[{section}]' if section else 'Top level'}\n\n")
        parts.append("| name | default | what it does | environment | flag |\n| --- | --- | --- | --- | --- |\n")
        parts += [_row(setting) for setting in members]
    return "".join(parts)


def _row(setting: Setting) -> str:
    default = "" if setting.is_secret else shown(setting, setting.default)
    kind = "secret" if setting.is_secret else allowed(setting)
    meaning = f"{setting.sentence} _({kind})_".replace("|", "\\|")
    cells = (f"`{setting.name}`", f"`{default}`" if default else "", meaning, f"`{setting.env}`")
    flag = f"`{setting.flag}`" if setting.flag else ""
    return f"| {' | '.join(cells)} | {flag} |\n"


def cli() -> str:
    """docs/reference/cli.md"""
    app = build()
    parts = [_CLI_HEAD, _MADE_BY.format(page="cli"), _help(app, ())]
    for name, _, _ in COMMANDS:
        parts.append(_help(app, (name,)))
        parts += [_help(app, (name, part)) for part in PARTS.get(name, ())]
    return "".join(parts)


def _help(app: App, command: tuple[str, ...]) -> str:
    from rich.console import Console

    page = io.StringIO()
    app.help_print(list(command), console=Console(file=page, width=WIDTH, force_terminal=False, color_system=None))
    text = "\n".join(line.rstrip() for line in page.getvalue().strip().splitlines())
    return f"\n## {' '.join(('turntake', *command))}\n\n```text\n{text}\n```\n"


if __name__ == "__main__":
    sys.stdout.write({"settings": settings, "cli": cli}[sys.argv[1]]())
