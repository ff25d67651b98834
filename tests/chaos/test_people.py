"""The platform insists as platforms do, and writes down every try."""

import random
from collections.abc import Iterator
from itertools import pairwise

import httpx2

from chaos.history import History
from chaos.people import Person, Platform, crowd, poisoner

DOORS = ("http://one", "http://two")


def client(answers: Iterator[httpx2.Response | Exception]) -> httpx2.AsyncClient:
    def answer(_: httpx2.Request) -> httpx2.Response:
        said = next(answers)
        if isinstance(said, Exception):
            raise said
        return said

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


def receipt(status: str) -> httpx2.Response:
    return httpx2.Response(202, json={"status": status})


async def test_it_tries_until_it_is_acknowledged() -> None:
    history = History()
    answers: list[httpx2.Response | Exception] = [
        httpx2.ReadTimeout("silence"),
        httpx2.Response(503),
        receipt("duplicate"),
    ]
    async with client(iter(answers)) as http:
        assert await Platform(http, DOORS, history, random.Random(1)).insist("acme.p0/1")
    assert [(s.status, s.is_acknowledged) for s in history.sendings] == [
        ("ReadTimeout", False),
        ("503", False),
        ("duplicate", True),
    ]
    assert all(sending.at <= sending.ended_at for sending in history.sendings)


async def test_one_that_gives_up_leaves_an_unacknowledged_message() -> None:
    history, chance = History(), random.Random(1)
    chance.random = lambda: 0.0  # type: ignore[method-assign]
    async with client(iter([httpx2.Response(503)])) as http:
        assert not await Platform(http, DOORS, history, chance).insist("acme.p0/1", gives_up=True)
    assert [sending.status for sending in history.sendings] == ["503"]


async def test_a_message_waits_for_the_one_before_it() -> None:
    history = History()
    async with client(iter(lambda: receipt("buffered"), None)) as http:
        person = Person("acme.p0", Platform(http, DOORS, history, random.Random(3)), random.Random(3))
        for _ in range(50):
            await person.say()
    firsts = {s.message: s for s in reversed(history.sendings)}
    ordered = [firsts[f"acme.p0/{number}"] for number in range(1, 51)]
    assert all(before.ended_at <= after.at for before, after in pairwise(ordered))
    assert len(history.sendings) > 50, "some are sent again"


async def test_tenants_share_names() -> None:
    async with client(iter([])) as http:
        names = [person.name for person in crowd(http, 4, DOORS, History(), 1)]
    assert names == ["acme.p0", "bolt.p0", "acme.p1", "bolt.p1"]


async def test_poison_is_marked_before_it_is_sent() -> None:
    history, seen = History(), []

    def answer(_: httpx2.Request) -> httpx2.Response:
        seen.append(set(history.poisonous))
        return receipt("buffered")

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        await poisoner(http, DOORS, history, 1).say_poison()
    assert seen == [{"acme.poison/1"}]
