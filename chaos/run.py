"""One run on one store: people talk, faults come and stop, everything drains, and the history is judged."""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import httpx2

from chaos.fleet import Fleet, Process
from chaos.history import DeadLetter, Fault, History, Limits, Violation
from chaos.nemesis import Nemesis, Ways
from chaos.outside import Outside
from chaos.people import PATIENCE_S, Person, crowd, poisoner
from chaos.promises import violations
from chaos.rebuild import lose_index
from chaos.stores import STORES, Setup
from harness.databases import free_port
from harness.proxy import Proxy

# Two seconds of lateness are what a machine with nothing else to do is allowed; this one has, so three times as much.
LIMITS = Limits(silence=0.15, typing=0.25, max_wait=1.5, max_messages=8, lease=2.0, slack=6.0, longest=90.0)
WARM_UP_S = 3.0
COOL_DOWN_S = 10.0
# Faults come for half a minute, and then not for as long as it may take until all is as before: so a long run shows
# again and again that it recovers, and not only how much of a storm without an end one process can bear.
STORM_S = 30.0
REST_S = 45.0
POISON_EVERY_S = 30.0
# Longer than a message that kills its workers takes until it is given up.
DRAIN_S = 60.0
STALL_S = 0.5
LONGEST_END_S = 180.0
SENTENCES = {
    "claims lost": "A claim was lost; its result counts for nothing",
    "turns not settled": "A turn could not be settled",
    "turns failed": "A turn failed",
    "messages the store lost": "The store lost messages",
}
OPEN_STATES = ("collecting", "answering", "replying")


@dataclass(slots=True)
class Outcome:
    """What came of a run; `logs` says how often the servers logged a sentence that counts."""

    store: str
    seed: int
    seconds: float
    history: History
    violations: list[Violation] = field(default_factory=list)
    logs: dict[str, int] = field(default_factory=dict)
    failed_starts: int = 0


async def run(
    store: str, seconds: float, people: int | None, seed: int, folder: Path, previous: str | None = None
) -> Outcome:
    """`previous` is the Python of an earlier release: every second process, from the first on, starts with that one."""
    began, history = time.monotonic(), History()
    outside = Outside(history, random.Random(f"{seed} outside"), 1.8 * LIMITS.lease)
    async with AsyncExitStack() as ends:
        setup = await ends.enter_async_context(STORES[store](folder))
        port = await ends.enter_async_context(_served(outside))
        ways = Ways(await ends.enter_async_context(Proxy(port)), await ends.enter_async_context(Proxy(port)))
        fleet = _fleet(setup, ways, folder, previous)
        ends.push_async_callback(fleet.close)
        await ends.enter_async_context(_watched(history, store))
        await fleet.open()
        nemesis = Nemesis(fleet, setup, ways, history, random.Random(f"{seed} nemesis"), LIMITS.lease)
        outside.on_poison = nemesis.poison
        async with asyncio.timeout(seconds + LONGEST_END_S):
            troubles = await _play(fleet, setup, nemesis, outside, seconds, people or setup.people, seed)
    found = [Violation("trouble", "", trouble) for trouble in (*troubles, *fleet.troubles)]
    return Outcome(
        store,
        seed,
        time.monotonic() - began,
        history,
        found + violations(history, LIMITS),
        {name: fleet.count(sentence) for name, sentence in SENTENCES.items()},
        sum(process.failed_starts for process in fleet.processes),
    )


async def _play(
    fleet: Fleet, setup: Setup, nemesis: Nemesis, outside: Outside, seconds: float, size: int, seed: int
) -> list[str]:
    """Returns what went wrong and is no part of the history."""
    history, stop = outside.history, asyncio.Event()
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
        people = crowd(client, size, fleet.doors, history, seed)
        async with asyncio.TaskGroup() as talking:
            for person in people:
                talking.create_task(person.talk(stop))
            await asyncio.sleep(WARM_UP_S)
            until = time.monotonic() + max(0, seconds - WARM_UP_S - COOL_DOWN_S)
            await _storms(fleet, nemesis, poisoner(client, fleet.doors, history, seed), until)
            for process in fleet.earlier:
                with history.fault("upgrade", process.name):
                    await process.upgrade()
            outside.is_calm = True
            await nemesis.ended()
            await fleet.ready()
            await asyncio.sleep(COOL_DOWN_S)
            stop.set()
        troubles = await drain(fleet)
        if setup.has_index:
            troubles += await lose_index(fleet, setup, people, history)
            troubles += await drain(fleet)
        await nemesis.ended()
        history.letters = await _letters(fleet)
    return troubles


async def _storms(fleet: Fleet, nemesis: Nemesis, person: Person, until: float) -> None:
    """Storms with rests between them; the last one ends at `until`."""
    while (left := until - time.monotonic()) > 0:
        storm_s = left if left < 2 * STORM_S else STORM_S
        async with asyncio.TaskGroup() as storm:
            storm.create_task(_poison(person, storm_s))
            storm.create_task(nemesis.torment(storm_s))
        if storm_s < left:
            await nemesis.ended()
            await fleet.ready()
            await asyncio.sleep(min(REST_S, until - time.monotonic()))


async def _poison(person: Person, seconds: float) -> None:
    """Somebody says something that kills whoever answers it, and says it again some time later."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await person.say_poison()
        await asyncio.sleep(min(POISON_EVERY_S, max(0.0, until - time.monotonic())))


async def drain(fleet: Fleet) -> list[str]:
    """Waits until nothing is open any more."""
    deadline = time.monotonic() + DRAIN_S
    async with httpx2.AsyncClient(base_url=fleet.doors[0], timeout=10) as client:
        while is_open := await _open(client):
            if time.monotonic() > deadline:
                return [f"{len(is_open)} conversations were still open after {DRAIN_S:.0f} s: {is_open[0]}"]
            await asyncio.sleep(0.1)
    return []


async def _letters(fleet: Fleet) -> list[DeadLetter]:
    async with httpx2.AsyncClient(base_url=fleet.doors[0], timeout=10) as client:
        listed = (await client.get("/v1/dead-letters", params={"limit": 100})).json()["deadLetters"]
        details = [(await client.get(f"/v1/dead-letters/{letter['id']}")).json() for letter in listed]
    return [
        DeadLetter(
            letter["id"],
            tuple(message["id"] for message in letter["messages"]),
            f"{letter['reason']}, {letter['error']}",
        )
        for letter in details
    ]


async def _open(client: httpx2.AsyncClient) -> list[str]:
    """Where a message waits or a turn is not settled. A process that dies meanwhile is asked again."""
    try:
        answers = [await client.get("/v1/conversations", params={"status": state}) for state in OPEN_STATES]
        return [str(found) for answer in answers for found in answer.json()["conversations"]]
    except httpx2.HTTPError as error:
        return [f"nobody knows: {error!r}"]


def _fleet(setup: Setup, ways: Ways, folder: Path, previous: str | None) -> Fleet:
    """With the rules that everybody has, but for times, which are short so that much happens in a run."""
    environment = {
        "TURNTAKE_STORE": setup.url,
        "TURNTAKE_AGENT": f"http://127.0.0.1:{ways.agent.port}/agent",
        "TURNTAKE_GENERIC_CALLBACK_URL": f"http://127.0.0.1:{ways.platform.port}/channel",
        "TURNTAKE_WORKER_LEASE_MS": str(round(LIMITS.lease * 1000)),
        "TURNTAKE_WORKER_SHUTDOWN_MS": "2000",
        "TURNTAKE_RULES_SILENCE_MS": str(round(LIMITS.silence * 1000)),
        "TURNTAKE_RULES_TYPING_INFERENCE_MS": str(round(LIMITS.typing * 1000)),
        "TURNTAKE_RULES_MAX_WAIT_MS": str(round(LIMITS.max_wait * 1000)),
        "TURNTAKE_RULES_MAX_MESSAGES": str(LIMITS.max_messages),
    }
    pythons = cycle((previous or sys.executable, sys.executable))
    return Fleet(
        [
            Process(f"{role}{number}", role, environment, folder, python)
            for number, (role, python) in enumerate(zip(setup.roles, pythons, strict=False), 1)
        ]
    )


@asynccontextmanager
async def _served(outside: Outside) -> AsyncIterator[int]:
    port = free_port()
    server = outside.server(port)
    serving = asyncio.create_task(server.serve())
    try:
        yield port
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def _watched(history: History, store: str) -> AsyncIterator[None]:
    """Prints how it goes, and notes when this very process was held up: then lateness proves nothing."""
    watching = asyncio.create_task(_watch(history, store))
    try:
        yield
    finally:
        watching.cancel()


async def _watch(history: History, store: str) -> None:
    began = before = told_at = time.monotonic()
    while True:
        await asyncio.sleep(0.05)
        now = time.monotonic()
        if now - before > STALL_S:
            history.faults.append(Fault("stall", "this machine", before, now))
        if now - told_at > 10:
            told_at = now
            sent, turns = len(history.sendings), len({call.turn_id for call in history.hand_overs})
            print(
                f"  {store} {now - began:.0f} s: {sent} sent, {turns} turns, {len(history.faults)} faults", flush=True
            )
        before = now
