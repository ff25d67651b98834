"""`turntake turns`: one turn, from its first message to its answer."""

from operator import itemgetter
from typing import Annotated, Any
from urllib.parse import quote

from cyclopts import App, Parameter

from turntake.clock import SystemClock
from turntake.instants import to_ms
from turntake.operate.cli.connection import Key, Url, connected, since
from turntake.operate.cli.flags import Config, Json
from turntake.operate.cli.output import clean, clean_indented, counted, duration, paint, say, say_json

COLOURS = {"answered": "green", "dead": "red", "cleared": "red"}

app = App(
    name="turns",
    help_epilogue="""
Examples:

    turntake turns show turn_0123    its messages, why it waited, its answer
    turntake conversations KEY       lists the latest turns of a conversation
""",
)


@app.command(help_epilogue="")
def show(
    id: Annotated[str, Parameter(help="The turn's id, as `turntake conversations KEY` and the log show it.")],
    /,
    *,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show a turn: its messages, how its deadline moved, and its answer."""
    with connected(url, key, config) as client:
        turn = client.get(f"/v1/turns/{quote(id, safe='')}")
    if json:
        return say_json(turn)
    status = paint(COLOURS.get(turn["status"], "yellow"), turn["status"])
    say(f"{paint('bold', clean(turn['turnId']))}  {status}  {clean(turn['conversationKey'])}")
    say(_summary(turn))
    _say_wait(turn)
    _say_answer(turn)


def _summary(turn: dict[str, Any]) -> str:
    parts = [counted(turn["messageCount"], "message")]
    if turn["waitedMs"] is not None:
        parts.append(f"waited {duration(turn['waitedMs'])}, then: {clean(turn['reason'])}")
    parts.append(counted(turn["attempt"], "attempt"))
    if turn["settledAt"]:
        parts.append(f"ended {since(turn['settledAt'], SystemClock())}")
    return ", ".join(parts)


def _say_wait(turn: dict[str, Any]) -> None:
    """Message by message, each with the deadline that it set; times count from the first."""
    start_at = to_ms(turn["bufferedAt"] or turn["claimedAt"] or turn["settledAt"])
    steps = [(to_ms(m["receivedAt"]), 0, clean(m["text"]) or "(no text)") for m in turn["messages"]]
    steps += [
        (to_ms(d["at"]), 1, paint("dim", f"due at {_after(to_ms(d['dueAt']), start_at)}: {clean(d['reason'])}"))
        for d in turn["decisions"]
    ]
    if turn["claimedAt"]:
        steps.append((to_ms(turn["claimedAt"]), 2, paint("dim", "handed to the agent")))
    say()
    # By time and kind alone: messages of one millisecond keep the order in which they came.
    for at, order, text in sorted(steps, key=itemgetter(0, 1)):
        say(f"  {_after(at, start_at):>8}  {'  ' if order else ''}{text}")


def _after(at: int, start_at: int) -> str:
    return f"{(at - start_at) / 1000:.1f} s"


def _say_answer(turn: dict[str, Any]) -> None:
    if turn["replies"] or turn["status"] == "answered":
        say("\nAnswer:")
    for reply in turn["replies"] or (["(nothing to say)"] if turn["status"] == "answered" else []):
        for line in reply.splitlines():
            say(f"  {clean_indented(line)}")
    for delivery in turn.get("deliveries", ()):  # a server of an earlier release knows none
        part = f"part {delivery['index'] + 1}: " if len(turn["replies"]) > 1 else ""
        line = f"{part}{delivery['status']} {since(delivery['at'], SystemClock())}"
        say(paint("red" if delivery["status"] == "failed" else "dim", f"  {line}"))
    if turn["unknownReplies"]:
        say(paint("yellow", "The platform did not say whether it took all of that; some may not have arrived."))
    if turn["error"]:
        say(f"\nerror  {clean(turn['error'])}")
    if turn["status"] in ("dead", "cleared"):
        say(f"Its messages are a dead letter: turntake letters show {clean(turn['turnId'])}")
