"""`turntake stats`: what collecting messages saved, and what it cost in time."""

from typing import Annotated, Any

from cyclopts import App

from turntake.clock import SystemClock
from turntake.observe.options import money_text
from turntake.operate.cli.connection import Key, Url, connected, since
from turntake.operate.cli.flags import Config, Json, option
from turntake.operate.cli.output import counted, duration, paint, say, say_json, table

app = App(
    name="stats",
    help_epilogue="""
A price for one call tells the savings in money: savings.call_price in
turntake.toml, or TURNTAKE_SAVINGS_CALL_PRICE.

Examples:

    turntake stats                   the whole installation, and each tenant
    turntake stats --tenant acme     one of them
    turntake stats --json            for a program
""",
)


@app.default
def stats(
    *,
    tenant: Annotated[str, option("Only this tenant's.", "NAME")] = "",
    url: Url = None,
    key: Key = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Tell what collecting messages saved: model calls, money, and what it cost in time."""
    with connected(url, key, config) as client:
        found = client.get("/v1/stats", tenant=tenant)
    if json:
        return say_json(found)
    total = found["total"]
    if not total["turns"]:
        say("No turn was answered yet, so nothing was saved.")
        return
    for line in _summary(found, total):
        say(line)
    if len(found["tenants"]) > 1:
        say()
        header = ("TENANT", "MESSAGES", "TURNS", "CALLS AVOIDED", "ADDED PER TURN", "SAVED")
        for line in table(header, [_row(each, found["currency"]) for each in found["tenants"]]):
            say(line)


def _summary(found: dict[str, Any], total: dict[str, Any]) -> list[str]:
    messages, avoided = total["messages"], total["callsAvoided"]
    lines = [
        paint("bold", f"{counted(messages, 'message')} in {counted(total['turns'], 'turn')}")
        + f", counted since {since(found['since'], SystemClock())}",
        paint("green", f"{counted(avoided, 'model call')} avoided ({100 * avoided // messages} %)"),
    ]
    if total["moneySaved"] is not None:
        price = f"at {found['callPrice']:g} {found['currency']} per call"
        lines.append(paint("green", f"{money_text(total['moneySaved'], found['currency'])} saved") + f", {price}")
    lines.append(f"{_per_turn(total)} added per turn by waiting, {duration(total['addedMs'])} in all")
    setbacks = [
        counted(total["interrupted"], "answer") + " interrupted" if total["interrupted"] else "",
        counted(total["failed"], "attempt") + " failed" if total["failed"] else "",
        counted(total["dead"], "dead letter") if total["dead"] else "",
    ]
    if any(setbacks):
        lines.append(paint("dim", ", ".join(filter(None, setbacks))))
    return lines


def _row(each: dict[str, Any], currency: str) -> tuple[object, ...]:
    money = "" if each["moneySaved"] is None else money_text(each["moneySaved"], currency)
    return each["tenant"], each["messages"], each["turns"], each["callsAvoided"], _per_turn(each), money


def _per_turn(sums: dict[str, Any]) -> str:
    return duration(sums["addedMs"] / sums["turns"]) if sums["turns"] else ""
