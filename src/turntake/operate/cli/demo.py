"""`turntake demo`: the crowd in the terminal while it writes, and the totals afterwards."""

import asyncio
import shutil
import sys
from contextlib import AsyncExitStack
from random import Random
from typing import Annotated, Any

from cyclopts import App

from turntake.clock import Clock, SystemClock
from turntake.errors import ConfigurationError
from turntake.instants import to_ms
from turntake.operate import logs
from turntake.operate.cli.connection import Key, destination
from turntake.operate.cli.flags import option
from turntake.operate.cli.output import clean, counted, duration, paint, say, short
from turntake.operate.demo.story import Demo, DemoPerson, embedded

REDRAW_MS = 120  # often enough to look alive, seldom enough for a slow terminal
COLOURS = {"quiet": "dim", "collecting": "yellow", "answering": "green"}

app = App(
    name="demo",
    help_epilogue="""
Without --url it starts a server of its own that keeps nothing, on a free port.

Examples:

    turntake demo                               twelve people, twenty seconds
    turntake demo --people 40 --speed 3         a rush hour
    turntake demo --url http://127.0.0.1:8080   against your server and agent
""",
)


@app.default
def demo(
    *,
    people: Annotated[int, option("How many people write, 1 to 500. [12]", "NUMBER")] = 12,
    seconds: Annotated[float, option("For how long they write, 1 to 600. [20]", "NUMBER")] = 20,
    speed: Annotated[float, option("How much faster than life, 0.1 to 20. [1]", "NUMBER")] = 1,
    url: Annotated[str | None, option("A running server. [one of its own]", "URL")] = None,
    key: Key = None,
) -> int:
    """Watch a lively synthetic crowd, and what collecting its messages saves."""
    for name, value, least, most in (
        ("people", people, 1, 500),
        ("seconds", seconds, 1, 600),
        ("speed", speed, 0.1, 20),
    ):
        if not least <= value <= most:
            raise ConfigurationError(f"--{name} is {value:g}: choose from {least:g} to {most:g}.")
    logs.configure(logs.LogOptions(level="warning", format="text"))
    return asyncio.run(_demo(people, seconds, speed, url, key))


async def _demo(people: int, seconds: float, speed: float, url: str | None, key: str | None) -> int:
    clock, chance = SystemClock(), Random()
    async with AsyncExitStack() as stack:
        if url is None:
            url = await stack.enter_async_context(embedded(clock, speed, chance))
        else:
            url, key = destination(url, key)
        play = Demo(url, key or "", clock, people=people, speed=speed, chance=chance)
        say(
            f"{counted(people, 'person')} write to {url} for {seconds:g} s. Ctrl-C ends it.".replace(
                "persons", "people"
            )
        )
        showing = asyncio.create_task(_live(play) if sys.stdout.isatty() else _lines(play))
        try:
            await play.play(int(seconds * 1_000))
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)
        _summary(play, await play.sample())
    return 0 if play.tally.answered else 1


async def _lines(play: Demo) -> None:
    """Where the output is not a terminal: one line per turn, no control codes."""
    while True:
        person, event = await play.events.get()
        if event.kind == "claimed":
            number = counted(event.data["messages"], "message")
            say(f"{person.name:<8} {person.manner.name:<12} {number:>11} -> 1 turn  ({event.data['reason']})")


async def _live(play: Demo) -> None:
    """Redraws a block of lines in place, no higher than the terminal."""
    drawn = 0
    while True:
        columns, rows = shutil.get_terminal_size()
        lines = [_head(play), *(_row(person, play.clock, columns) for person in play.people.values())][: rows - 2]
        up = f"\x1b[{drawn}A" if drawn else ""
        sys.stdout.write(up + "".join(f"\x1b[2K{line}\n" for line in lines))
        sys.stdout.flush()
        drawn = len(lines)
        await play.clock.sleep(REDRAW_MS)


def _head(play: Demo) -> str:
    tally = play.tally
    return paint("bold", f"{tally.messages} messages, {tally.turns} turns, {tally.saved} calls saved")


def _row(person: DemoPerson, clock: Clock, columns: int) -> str:
    left = (person.due_at or 0) - clock.now()
    notes = {
        "collecting": f"{'●' * min(person.waiting, 10)} {person.reason}, due in {max(0, left) / 1000:.1f} s",
        "answering": "… the agent has it",
    }
    start = f"{person.name:<8} {person.manner.name:<12} "
    room = max(10, columns - len(start) - 46)
    line = (
        f"{person.state:<11} {notes.get(person.state, ''):<32} {short(person.texts[-1] if person.texts else '', room)}"
    )
    return start + paint(COLOURS[person.state], line)


def _summary(play: Demo, sample: dict[str, Any] | None) -> None:
    tally = play.tally
    share = f" ({100 * tally.saved // tally.messages} %)" if tally.messages else ""
    say()
    say(f"{counted(tally.messages, 'message')} became {counted(tally.turns, 'turn')}.")
    say(paint("green", f"{counted(tally.saved, 'model call')} saved{share}."))
    say(f"From a person's last message until the agent had it: {duration(tally.average_added_ms)} on average.")
    unanswered = sum(person.unanswered for person in play.people.values())
    if unanswered:
        say(paint("yellow", f"{counted(unanswered, 'message')} still unanswered when the demo ended."))
    if sample:
        _why(sample, play.people.get(sample["conversationKey"]))


def _why(turn: dict[str, Any], person: DemoPerson | None) -> None:
    """One turn, message by message, with the deadline that each set."""
    start = to_ms(turn["firstMessageAt"])
    say(f"\nWhy, for example: {person.name if person else 'somebody'}, {turn['messageCount']} messages, one turn")
    texts = {message["receivedAt"]: message["text"] for message in turn["messages"]}
    for decision in turn["decisions"]:
        at, due = to_ms(decision["at"]), to_ms(decision["dueAt"])
        text = clean(texts.get(decision["at"], "(seen typing)"))
        wait = f"wait until {(due - start) / 1000:.1f} s: {decision['reason']}"
        say(f"  {(at - start) / 1000:5.1f} s  {short(text, 40):<40}  {wait}")
    claimed = to_ms(turn["claimedAt"])
    say(f"  {(claimed - start) / 1000:5.1f} s  handed to the agent, because of: {turn['reason']}")
