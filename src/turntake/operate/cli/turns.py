"""`turntake turns`: the turns of a conversation, and each of them from its first message to its answer."""

from operator import itemgetter
from typing import Annotated, Any
from urllib.parse import quote

from cyclopts import App, Parameter

from turntake.clock import SystemClock
from turntake.instants import to_ms
from turntake.operate.cli.connection import Key, Url, connected, full_key, since
from turntake.operate.cli.flags import Config, Json, option, switch
from turntake.operate.cli.output import clean, clean_indented, counted, duration, paint, say, say_json, short, table
from turntake.operate.client import Client

PAGE = 100  # the most that the server lists at once
ANSWER_WIDTH = 40
COLOURS = {"answered": "green", "dead": "red", "cleared": "red", "stopped": "yellow"}

_LETTER = "Its messages are a dead letter: turntake letters show {id}"
ENDS = {"dead": _LETTER, "cleared": _LETTER, "stopped": "The person said to stop, so nobody answers it."}

app = App(
    name="turns",
    help_epilogue="""
Examples:

    turntake turns list KEY          a conversation's turns, the latest first
    turntake turns list KEY --long   the same with messages and answers
    turntake turns show turn_0123    its messages, why it waited, its answer
""",
)


@app.command(name="list", help_epilogue="")
def list_(
    conversation: Annotated[str, Parameter(name="KEY", help="Whose: a key as listed, or just its name.")],
    /,
    *,
    limit: Annotated[int, option("How many at most. [20]", "NUMBER")] = 20,
    long: Annotated[bool, switch("Each with its messages, how its deadline moved, and its answer.")] = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """List the turns of a conversation, the latest first."""
    path = f"/v1/conversations/{quote(full_key(conversation), safe='')}/turns"
    with connected(url, key, config) as client:
        turns, cursor = _latest(client, path, limit)
    if json:
        return say_json({"turns": turns, "cursor": cursor})
    if not turns:
        say("No turns are kept of this conversation.")
    elif long:
        for turn in turns:
            _say(turn)
            say()
    else:
        for line in table(
            ("TURN", "STATUS", "ENDED", "MESSAGES", "WAITED", "REASON", "ATTEMPTS", "ANSWER"), map(_row, turns)
        ):
            say(line)
    if cursor:
        say(paint("dim", f"The latest {len(turns)}; --limit shows more."))


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
    _say(turn)


def _latest(client: Client, path: str, limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """The latest `limit` turns, page by page, and the cursor that leads on."""
    turns: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None and len(turns) < limit:
        page = client.get(path, limit=min(limit - len(turns), PAGE), cursor=cursor)
        turns += page["turns"]
        cursor = page["cursor"]
    return turns, cursor


def _row(turn: dict[str, Any]) -> tuple[object, ...]:
    ended = since(turn["settledAt"], SystemClock()) if turn["settledAt"] else ""
    waited = "" if turn["waitedMs"] is None else duration(turn["waitedMs"])
    answer = short(" / ".join(turn["replies"]) or turn["error"], ANSWER_WIDTH)
    return (
        turn["turnId"],
        turn["status"],
        ended,
        turn["messageCount"],
        waited,
        turn["reason"],
        turn["attempt"],
        answer,
    )


def _say(turn: dict[str, Any]) -> None:
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
    if turn["status"] in ENDS:
        say(ENDS[turn["status"]].format(id=clean(turn["turnId"])))
