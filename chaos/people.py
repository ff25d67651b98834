"""People who talk in bursts, through a platform that sends again what was not acknowledged."""

import asyncio
import random
import time
from collections.abc import Sequence

import httpx2

from chaos.history import History, Sending

PATIENCE_S = 3.0  # what the least patient platforms grant
GIVE_UP = 0.02
COPY = 0.05
REPEAT = 0.08
REMEMBERED = 20


class Platform:
    """Carries messages to one of the doors, chosen anew for each try."""

    def __init__(self, client: httpx2.AsyncClient, doors: Sequence[str], history: History, chance: random.Random):
        self._client = client
        self._doors = doors
        self.history = history
        self._chance = chance

    async def insist(self, message: str, *, gives_up: bool = False) -> bool:
        """Tries until it is acknowledged. One that gives up may do so after any try; then False."""
        while not await self._try(message):
            if gives_up and self._chance.random() < GIVE_UP:
                return False
            await asyncio.sleep(self._chance.uniform(0.02, 0.3))
        return True

    async def _try(self, message: str) -> bool:
        tenant, _, conversation = message.rpartition("/")[0].partition(".")
        body = {"tenant": tenant, "conversation": conversation, "id": message, "text": f"text of {message}"}
        sending = Sending(message, time.monotonic())
        self.history.sendings.append(sending)
        try:
            response = await self._client.post(f"{self._chance.choice(self._doors)}/v1/messages", json=body)
        except httpx2.HTTPError as error:
            sending.status = type(error).__name__
        else:
            sending.is_acknowledged = response.status_code == 202
            sending.status = response.json()["status"] if sending.is_acknowledged else str(response.status_code)
        sending.ended_at = time.monotonic()
        return sending.is_acknowledged


class Person:
    """One conversation. Names read `tenant.conversation`; tenants share the conversations' names."""

    def __init__(self, name: str, platform: Platform, chance: random.Random) -> None:
        self.name = name
        self._platform = platform
        self._chance = chance
        self._number = 0
        self._known: list[str] = []

    async def talk(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            for _ in range(self._chance.choice((1, 1, 2, 3, 3, 4, 5, 9))):
                await self.say()
                await asyncio.sleep(self._chance.uniform(0, 0.12))
            await asyncio.sleep(self._chance.uniform(0.3, 3.5))

    async def say(self) -> None:
        """The next message, sometimes twice at once, sometimes followed by one that is long known."""
        self._number += 1
        message = f"{self.name}/{self._number}"
        if self._chance.random() < COPY:
            await asyncio.gather(self._platform.insist(message), self._platform.insist(message))
        elif not await self._platform.insist(message, gives_up=True):
            return
        self._known = [*self._known[1 - REMEMBERED :], message]
        if self._chance.random() < REPEAT:
            await self._platform.insist(self._chance.choice(self._known))

    async def say_poison(self) -> None:
        """A message of which whoever answers it dies."""
        self._number += 1
        message = f"{self.name}/{self._number}"
        self._platform.history.poisonous.add(message)
        await self._platform.insist(message)


def poisoner(client: httpx2.AsyncClient, doors: Sequence[str], history: History, seed: int) -> Person:
    """Somebody with a conversation of his own."""
    chance = random.Random(f"{seed} poison")
    return Person("acme.poison", Platform(client, doors, history, chance), chance)


def crowd(client: httpx2.AsyncClient, size: int, doors: Sequence[str], history: History, seed: int) -> list[Person]:
    """`size` people in two tenants."""
    people = []
    for number in range(size):
        chance = random.Random(f"{seed} person {number}")
        name = f"{('acme', 'bolt')[number % 2]}.p{number // 2}"
        people.append(Person(name, Platform(client, doors, history, chance), chance))
    return people
