"""The demo: a synthetic crowd writes to a server over HTTP, and what the server made of it is counted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx2
import msgspec

from turntake.clock import Clock
from turntake.deliver.turn import Turn
from turntake.errors import TurntakeError
from turntake.instants import to_ms
from turntake.operate.client import STREAM_TIMEOUT, EventParser, ServerEvent, client_options, complaint, explained
from turntake.operate.demo.crowd import MANNERS, Fragment, Manner, name_of, thought
from turntake.rules.rules import Rules
from turntake.service import TurnTake

PATIENCE_MS = 12_000  # after which a person without an answer writes on
LAST_WAIT_MS = 40_000  # longer than `max_wait_ms`, so that every turn falls due
MOST_MESSAGES = 5_000  # a fast crowd against somebody's own server must end
THINKING_MS = (400, 1_200)  # a quick model


@dataclass
class DemoPerson:
    """Somebody in the crowd, and what the server last said about their conversation."""

    name: str
    manner: Manner
    conversation: str
    state: str = "quiet"
    waiting: int = 0
    due_at: int | None = None
    reason: str = ""
    last_at: int = 0
    unanswered: int = 0
    has_answer: asyncio.Event = field(default_factory=asyncio.Event)
    texts: list[str] = field(default_factory=list)


@dataclass
class Tally:
    """What happened so far. `added_ms` is, for each turn, the time from its last message until an agent had it."""

    messages: int = 0
    gathered: int = 0
    turns: int = 0
    answered: int = 0
    added_ms: list[int] = field(default_factory=list)
    fullest: tuple[int, str] = (0, "")

    @property
    def saved(self) -> int:
        """Calls not made so far; messages that still wait may yet need one."""
        return max(0, min(self.messages, self.gathered) - self.turns)

    @property
    def average_added_ms(self) -> float:
        return sum(self.added_ms) / len(self.added_ms) if self.added_ms else 0.0


class Demo:
    """People who write, and the counts of what the server makes of it.

    `events` receives each event about our people after it was counted, for whoever shows it.
    """

    def __init__(self, url: str, key: str, clock: Clock, *, people: int, speed: float, chance: Random) -> None:
        self.tally = Tally()
        self.clock = clock
        self.events: asyncio.Queue[tuple[DemoPerson, ServerEvent]] = asyncio.Queue()
        self._url, self._key = url, key
        self._sealed: dict[str, int] = {}
        self._speed = speed
        self._chance = chance
        run = f"{chance.randrange(1 << 32):08x}"
        manners = [MANNERS[number % len(MANNERS)] for number in range(people)]
        self.people = {
            f"default:demo:default:{run}-{number}": DemoPerson(name_of(number), manner, f"{run}-{number}")
            for number, manner in enumerate(manners)
        }

    async def play(self, for_ms: int) -> None:
        """Lets everybody write for about so long, then waits a bounded time for the last answers."""
        end = self.clock.now() + for_ms
        with explained(self._url):
            async with self._connected() as lines:
                await self._play(lines, end)

    async def _play(self, lines: AsyncIterator[str], end: int) -> None:
        watching = asyncio.create_task(self._watch(lines))
        try:
            await asyncio.gather(*(self._write(person, end) for person in self.people.values()))
            await self._rest(watching)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of the event stream, open before the first word is said."""
        async with (
            httpx2.AsyncClient(**client_options(self._url, self._key)) as self._http,
            self._http.stream("GET", "/v1/events", timeout=STREAM_TIMEOUT) as stream,
        ):
            if stream.status_code != 200:
                await stream.aread()
                raise TurntakeError(complaint(stream, self._url))
            yield stream.aiter_lines()

    async def sample(self) -> dict[str, Any] | None:
        """The turn that gathered the most messages, with every decision on its way."""
        if not self.tally.fullest[1]:
            return None
        with explained(self._url):
            async with httpx2.AsyncClient(**client_options(self._url, self._key)) as http:
                response = await http.get(f"/v1/turns/{self.tally.fullest[1]}")
        turn: dict[str, Any] | None = msgspec.json.decode(response.content) if response.is_success else None
        return turn

    async def _write(self, person: DemoPerson, end: int) -> None:
        await self._pause(self._chance.randint(0, person.manner.rest_ms[0]))
        while self.clock.now() < end and self.tally.messages < MOST_MESSAGES:
            for fragment in thought(person.manner, self._chance):
                await self._say(person, fragment)
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_MS / 1000 / self._speed):
                    await person.has_answer.wait()
            await self._pause(self._chance.randint(*person.manner.rest_ms))

    async def _say(self, person: DemoPerson, fragment: Fragment) -> None:
        about = {"conversation": person.conversation, "channel": "demo"}
        if person.manner.is_seen_typing and fragment.pause_ms:
            await self._post("/v1/activity", about | {"kind": "typing"})
        await self._pause(fragment.pause_ms)
        self.tally.messages += 1
        person.unanswered += 1
        person.has_answer.clear()
        person.texts = [*person.texts[-9:], fragment.text]
        await self._post("/v1/messages", about | {"id": f"m{self.tally.messages}", "text": fragment.text})

    async def _post(self, path: str, body: dict[str, Any]) -> None:
        response = await self._http.post(path, json=body)
        if response.status_code != 202:
            raise TurntakeError(complaint(response, self._url))

    async def _pause(self, duration_ms: float) -> None:
        await self.clock.sleep(int(duration_ms / self._speed))

    async def _rest(self, watching: "asyncio.Task[None]") -> None:
        """Waits until everybody has an answer, at most `LAST_WAIT_MS`."""
        end = self.clock.now() + int(LAST_WAIT_MS / self._speed)
        while any(person.unanswered for person in self.people.values()):
            if self.clock.now() >= end or watching.done():
                return
            await self.clock.sleep(50)

    async def _watch(self, lines: AsyncIterator[str]) -> None:
        parser = EventParser()
        async for line in lines:
            event = parser.feed(line)
            person = self.people.get(event.data["conversationKey"]) if event else None
            if event and person:
                self._note(person, event)
                self.events.put_nowait((person, event))

    def _note(self, person: DemoPerson, event: ServerEvent) -> None:
        data, at = event.data, to_ms(event.data["at"])
        if event.kind == "buffered":
            person.state, person.last_at = "collecting", at
            person.waiting, person.reason = data["messages"], data["reason"]
        elif event.kind == "claimed" and data["attempt"] == 1:
            self._claimed(person, data)
        elif event.kind in ("answered", "dead-lettered"):
            self.tally.answered += event.kind == "answered"
            person.unanswered -= min(person.unanswered, self._sealed.pop(data["turnId"], 0))
            person.state = "collecting" if person.waiting else "quiet"
            if not person.unanswered:
                person.has_answer.set()
        if data.get("dueAt"):
            person.due_at = to_ms(data["dueAt"])

    def _claimed(self, person: DemoPerson, data: dict[str, Any]) -> None:
        self._sealed[data["turnId"]] = data["messages"]
        person.state, person.waiting, person.reason = "answering", 0, data["reason"]
        self.tally.turns += 1
        self.tally.gathered += data["messages"]
        self.tally.added_ms.append(max(0, to_ms(data["claimedAt"]) - person.last_at))
        self.tally.fullest = max(self.tally.fullest, (data["messages"], data["turnId"]))


@asynccontextmanager
async def embedded(clock: Clock, speed: float, chance: Random) -> AsyncIterator[str]:
    """The address of a server in this process that forgets everything; its rules are as fast as the crowd."""
    from turntake.http.server import Server, listen, url_of

    async def answer(turn: Turn) -> str:
        await clock.sleep(int(chance.randint(*THINKING_MS) / speed))
        return f"An answer to all {len(turn.messages)} at once."

    turns = TurnTake("memory://", rules=hastened(Rules(), speed), agent=answer, clock=clock)
    app = turns.asgi()
    ready = asyncio.Event()
    bound = listen("127.0.0.1", 0)
    server = Server(app, 1_000, ready.set, app.state.events.close, is_guest=True)
    serving = asyncio.create_task(server.serve([bound]))
    try:
        await ready.wait()
        yield url_of(bound)
    finally:
        server.stop()
        await serving


def hastened(rules: Rules, speed: float) -> Rules:
    """The same rules for people who do everything `speed` times as fast."""
    names = ("silence_ms", "typing_inference_ms", "max_wait_ms", "activity_ms")
    return msgspec.structs.replace(rules, **{name: int(getattr(rules, name) / speed) for name in names})
