"""`turntake doctor`: findings, then every setting with its origin."""

import os

from cyclopts import App

from turntake.clock import SystemClock
from turntake.errors import ConfigurationError
from turntake.operate import doctor as examination
from turntake.operate.cli.flags import Json, Load, takes_settings
from turntake.operate.cli.output import counted, paint, say, say_json, table
from turntake.operate.doctor import Check
from turntake.operate.settings import SETTINGS, Setting, Settings, shown

MARKS = {"ok": ("green", "✓"), "warn": ("yellow", "!"), "fail": ("red", "✗")}

app = App(
    name="doctor",
    help_epilogue="""
It takes the flags of `turntake serve`, changes nothing, and exits with 1
if anything is marked ✗.

Examples:

    turntake doctor                                as serve would start here
    turntake doctor --store sqlite:////data/t.db   another store
    turntake doctor --json                         for machines
""",
)


@app.default
@takes_settings
def doctor(load: Load, *, json: Json = False) -> int:
    """Check this installation, and show every setting and where it came from."""
    checks, rows = _findings(load)
    if json:
        say_json({"checks": [check._asdict() for check in checks], "settings": rows})
    else:
        _print(checks, rows)
    return int(any(check.mark == "fail" for check in checks))


def _findings(load: Load) -> tuple[list[Check], list[dict[str, str]]]:
    try:
        settings = load()
    except ConfigurationError as error:
        return [*examination.machine(SystemClock()), Check("fail", "config", str(error))], []
    checks = list(examination.examine(settings, os.environ, SystemClock()))
    return checks, [_row(setting, settings) for setting in SETTINGS]


def _print(checks: list[Check], rows: list[dict[str, str]]) -> None:
    width = max(len(check.about) for check in checks)
    for check in checks:
        colour, mark = MARKS[check.mark]
        say(f"{paint(colour, mark)} {check.about.ljust(width)}  {check.says}")
    say()
    if rows:
        for line in table(("SETTING", "VALUE", "FROM"), [tuple(row.values()) for row in rows]):
            say(line)
        say()
    failures = sum(check.mark == "fail" for check in checks)
    say(paint("red", f"{counted(failures, 'problem')} to mend.") if failures else paint("green", "All is well."))


def _row(setting: Setting, settings: Settings) -> dict[str, str]:
    value, origin, _ = settings.given[setting.key]
    return {"setting": setting.key, "value": shown(setting, value) or "not set", "from": origin}
