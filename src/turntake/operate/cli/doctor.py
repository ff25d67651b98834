"""`turntake doctor`: findings, then what is set, with its origin."""

import asyncio
import os
import sys
from typing import Annotated, NamedTuple

from cyclopts import App

from turntake.clock import SystemClock
from turntake.errors import ConfigurationError
from turntake.finding import Finding, Level
from turntake.operate.cli.flags import Json, Load, switch, takes_settings
from turntake.operate.cli.output import clean, counted, paint, say, say_json, table
from turntake.operate.doctor import report as examination
from turntake.operate.doctor import stores
from turntake.operate.options.groups import Options
from turntake.operate.options.settings import Setting, shown

MARKS = {"ok": ("green", "✓"), "warn": ("yellow", "!"), "fail": ("red", "✗")}
WIDTH = len("environment")

Rebuild = Annotated[bool, switch("Restore the store's index of deadlines from the conversations.")]
ResetClock = Annotated[bool, switch("Set the store's time right after a clock was ahead; stop every process first.")]
Offline = Annotated[bool, switch("Do not ask the configured platforms whether they know us, nor call the agent.")]
All = Annotated[bool, switch("Show every setting, also those that have their default.")]
FinishUpgrade = Annotated[bool, switch("Run the migrations that had to wait until no process of the old version runs.")]

app = App(
    name="doctor",
    help_epilogue="""
It takes the flags of `turntake serve` and exits with 1 if anything is marked
✗. It changes nothing, except what --rebuild, --reset-clock and
--finish-upgrade say.

Examples:

    turntake doctor                                as serve would start here
    turntake doctor --store sqlite:////data/t.db   another store
    turntake doctor --all                          with every default
    turntake doctor --json                         for machines
    turntake doctor --offline                      without calling platforms
    turntake doctor --rebuild                      after a store was restored
    turntake doctor --reset-clock                  after a clock was wrong
    turntake doctor --finish-upgrade               after a rolling upgrade
""",
)


@app.default
@takes_settings
def doctor(
    load: Load,
    *,
    all: All = False,
    offline: Offline = False,
    rebuild: Rebuild = False,
    reset_clock: ResetClock = False,
    finish_upgrade: FinishUpgrade = False,
    json: Json = False,
) -> int:
    """Check this installation, and show what is set and where it came from."""
    report = Report(is_shown=not json)
    rows: list[dict[str, str]] = []
    left_out = 0
    try:
        options = load()
        repairs = Repairs(rebuild, reset_clock, finish_upgrade)
        asyncio.run(_examine(report, options, offline, repairs))
        shown = [
            s for s in options.sources.settings if all or json or options.sources.values[s.key].origin != "default"
        ]
        rows, left_out = [_row(s, options) for s in shown], len(options.sources.settings) - len(shown)
    except ConfigurationError as error:
        for finding in (*examination.machine(SystemClock()), Finding("fail", "config", str(error))):
            report.add(finding)
    if json:
        say_json({"checks": [_as_json(finding) for finding in report.findings], "settings": rows})
    else:
        _conclude(report, rows, left_out)
    return int(report.failures > 0)


class Repairs(NamedTuple):
    """What the doctor was asked to do, beyond looking."""

    rebuild: bool = False
    reset_clock: bool = False
    finish_upgrade: bool = False


class Report:
    """The findings so far; those of a long examination are shown while it goes on."""

    def __init__(self, is_shown: bool) -> None:
        self.findings: list[Finding] = []
        self._is_shown = is_shown

    @property
    def failures(self) -> int:
        return self._count("fail")

    @property
    def warnings(self) -> int:
        return self._count("warn")

    def _count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)

    def add(self, finding: Finding) -> None:
        self.findings.append(finding)
        if self._is_shown:
            colour, mark = MARKS[finding.level]
            say(f"{paint(colour, mark)} {finding.subject:<{WIDTH}}  {clean(finding.text)}")

    def begin(self, subject: str, text: str) -> None:
        """Says what takes a while before it does."""
        if self._is_shown:
            say(paint("dim", f"… {subject:<{WIDTH}}  {text}"))
            sys.stdout.flush()


async def _examine(report: Report, options: Options, offline: bool, repairs: Repairs) -> None:
    clock, url = SystemClock(), options.store
    async for finding in examination.examine(options, os.environ, clock, is_offline=offline):
        report.add(finding)
    if repairs.reset_clock:
        report.begin("clock", "setting back every deadline")
        report.add(await stores.reset_clock(url, clock))
    if repairs.rebuild:
        report.begin("rebuild", "reading every conversation")
        report.add(await stores.rebuild(url, clock))
    if repairs.finish_upgrade:
        report.begin("upgrade", "running the migrations that are left")
        report.add(await stores.finish_upgrade(url, clock))


def _conclude(report: Report, rows: list[dict[str, str]], left_out: int) -> None:
    say()
    if rows:
        for line in table(("SETTING", "VALUE", "FROM"), [tuple(row.values()) for row in rows]):
            say(line)
        say()
    if left_out:
        say(paint("dim", f"{counted(left_out, 'setting')} at the default; --all shows them."))
    if report.failures:
        say(paint("red", f"{counted(report.failures, 'problem')} to fix."))
    elif report.warnings:
        say(paint("yellow", f"It can start; {counted(report.warnings, 'warning')} above, marked with !."))
    else:
        say(paint("green", "All is well."))


def _as_json(finding: Finding) -> dict[str, str]:
    """In the words of the published JSON, which are older than those of the code."""
    return {"mark": finding.level, "about": finding.subject, "says": finding.text}


def _row(setting: Setting, options: Options) -> dict[str, str]:
    value, origin, _ = options.sources.values[setting.key]
    return {"setting": setting.key, "value": shown(setting, value) or "not set", "from": origin}
