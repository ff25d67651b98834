"""Two releases at once, as real processes on one store: new ones take over from old ones, and nobody notices."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain, product
from pathlib import Path
from typing import Any

import apsw
import pytest

from harness import next_release
from harness.databases import Postgres, Valkey
from harness.sender import Sender
from harness.serving import QUICK, Served, eventually, run, served
from turntake.buffer.codec import decode_conversation, encode
from turntake.operate.client import Client
from turntake.rules.conversation import Buffer, Conversation
from turntake.rules.deadline import Deadline, Decision

AGENT = """
import json
from turntake import RetryLater
from turntake.rules.conversation import Conversation
release = "next" if hasattr(Conversation(), "mood") else "this"
async def answer(turn):
    if turn.attempt == 1 and turn.messages[0].id.endswith(("3-0", "7-0")):
        raise RetryLater(0)
    with open("answered", "a") as file:
        line = {"release": release, "attempt": turn.attempt, "ids": [message.id for message in turn.messages]}
        file.write(json.dumps(line) + "\\n")
    return f"{len(turn.messages)} noted"
"""
BURST = 3
CROWD = 3  # so few that they write again while they are answered
BURSTS = 3  # of one person: a conversation shows its latest ten turns, so it must not have more

Next = dict[str, str]


@pytest.fixture(scope="module")
def next_one(tmp_path_factory: pytest.TempPathFactory) -> Next:
    return next_release.build(tmp_path_factory.mktemp("next"))


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Valkey]:
    with Valkey(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Postgres]:
    with Postgres(tmp_path / "postgres", is_safe=False) as server:
        yield server


def in_bursts(number: int) -> tuple[str, str]:
    """A few people at a time, who write in bursts by turns; a conversation is left after a few bursts."""
    burst, part = divmod(number, BURST)
    crowd, person = divmod(burst, CROWD * BURSTS)
    return f"c{crowd}-{person % CROWD}", f"m{burst}-{part}"


def roll(url: str, folder: Path, next_one: Next, finish: Callable[[], None]) -> None:
    """A rolling upgrade under load, from this release to the next; `finish` comes once all old processes are gone."""
    (folder / "noting.py").write_text(AGENT)
    people = Sender(in_bursts)
    with ExitStack() as stack:
        stack.callback(people.end)

        def start(role: str, env: Next | None = None) -> Served:
            flags = (*QUICK, "--store", url, "--role", role, "--agent", "noting:answer")
            return stack.enter_context(served(folder, *flags, env=env))

        old = [start("accept"), start("work")]
        people.targets.append(old[0].client)
        people.start()
        people.go_on(30)
        new = [start("accept", next_one), start("work", next_one)]
        people.targets.append(new[0].client)
        people.go_on(150)
        # An upgrade can be taken back: the old release still starts.
        old.append(start("work"))
        people.go_on(30)
        for server in old:
            stop_quietly(server)
            people.go_on(30)
        assert min(people.taken[server.url] for server in (old[0], new[0])) > 60
        finish()
        people.go_on(30)
        people.end()
        client = new[0].client
        found = {key: eventually(client, f"/v1/conversations/{key}", status="idle") for key in people.acknowledged}
        for key in list(found)[::10]:  # the notes below tell of all of them
            assert answered(client, found[key]["turns"]) == people.acknowledged[key]
        assert client.get("/v1/dead-letters")["deadLetters"] == []
        for server in new:
            stop_quietly(server)
    notes = [json.loads(line) for line in (folder / "answered").read_text().splitlines()]
    assert sorted(id for note in notes for id in note["ids"]) == sorted(chain(*people.acknowledged.values()))
    assert {(note["release"], note["attempt"]) for note in notes} == set(product(("this", "next"), (1, 2)))


def stop_quietly(server: Served) -> None:
    """It had lived until now, ends as it should, and had nothing to complain about since it started.

    But for a machine that is so busy that a process stands still for seconds, which is no fault of the upgrade.
    """
    assert server.process.poll() is None
    assert server.stop() == 0
    assert server.process.stderr is not None
    lines = [json.loads(line) for line in server.process.stderr]
    assert [line for line in lines if line["level"] != "info" and line.get("action") != "watch"] == []


def answered(client: Client, latest: list[dict[str, Any]]) -> list[str]:
    """The ids of a conversation's messages in the order of its turns, all of which were answered."""
    turns = [client.get(f"/v1/turns/{turn['turnId']}") for turn in reversed(latest)]
    assert {turn["status"] for turn in turns} == {"answered"}
    assert all(turn["replies"] == [f"{turn['messageCount']} noted"] for turn in turns)
    return [message["id"] for turn in turns for message in turn["messages"]]


def finished(url: str, folder: Path, next_one: Next) -> Any:
    """What the next release's doctor says about finishing the upgrade."""
    done = run("doctor", "--store", url, "--port", "0", "--finish-upgrade", "--json", folder=folder, env=next_one)
    assert done.returncode == 0, done.stdout
    return next(check["says"] for check in json.loads(done.stdout)["checks"] if check["about"] == "upgrade")


def complaint(url: str, folder: Path) -> str:
    """The one line with which this release refuses to start."""
    refused = run("serve", "--port", "0", "--store", url, folder=folder)
    assert refused.returncode != 0
    (line,) = refused.stderr.splitlines()
    return line


@pytest.mark.timeout(180)  # six processes start and stop in turn, which takes a busy machine a while
def test_a_rolling_upgrade_on_postgresql(postgres: Postgres, tmp_path: Path, next_one: Next) -> None:
    """The last step, under load like the others, takes away what only the old release needs; it is refused then."""

    def finish() -> None:
        assert finished(postgres.url, tmp_path, next_one) == next_release.POST
        assert complaint(postgres.url, tmp_path) == (
            f"turntake: The database was upgraded to the end ({next_release.POST}): install a newer turntake."
        )

    roll(postgres.url, tmp_path, next_one, finish)


@pytest.mark.timeout(180)  # six processes start and stop in turn, which takes a busy machine a while
def test_a_rolling_upgrade_on_redis(redis: Valkey, tmp_path: Path, next_one: Next) -> None:
    """There is no last step."""

    def finish() -> None:
        assert finished(redis.url, tmp_path, next_one) == "nothing was left to do"

    roll(redis.url, tmp_path, next_one, finish)


def test_a_newer_format_is_refused_on_redis(redis: Valkey, tmp_path: Path) -> None:
    redis.ask("HSET", "turntake:meta", "format", 2)
    assert complaint(redis.url, tmp_path) == (
        "turntake: The store has format 2, this release knows 1: install a newer turntake."
    )
    assert redis.ask("KEYS", "*") == [b"turntake:meta"]


def test_a_newer_schema_is_refused_on_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert "has schema 99" in complaint(f"sqlite:///{path}", tmp_path)


def test_a_reason_that_only_the_next_release_knows_is_read() -> None:
    """A later release may wait for something new, while this one still runs beside it."""
    due = Deadline(5, "mood")
    conversation = Conversation(2, 0, Buffer(1, 3, 4, due, due, (Decision(3, 5, due.reason),)))
    assert decode_conversation(encode(conversation)) == conversation
