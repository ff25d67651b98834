"""`turntake chat`: type messages yourself, a line each, and see them answered as turns."""

import os
import select
import sys
import uuid
from collections.abc import Iterator
from typing import Annotated

from cyclopts import App

from turntake.clock import Clock, SystemClock
from turntake.errors import ConfigurationError, TurntakeError
from turntake.operate.cli.connection import Key, Url, connected, until
from turntake.operate.cli.flags import Config, option
from turntake.operate.cli.following import POLL_MS, Follower, print_turn
from turntake.operate.cli.output import counted, paint, say
from turntake.operate.cli.send import me
from turntake.operate.client import Client
from turntake.rules.key import ConversationKey

PROMPT = "> "
CLEAR_LINE = "\r\x1b[2K"

app = App(
    name="chat",
    help_epilogue="""
Each line that you type is a message. Type several in a row, as people do:
they wait together, and are answered as one turn. By default the second must
come within a second; `turntake serve --rules-silence-ms 4000` has patience.
Ctrl-D ends it, once everything is answered.

Examples:

    turntake chat                       with the server that runs here
    turntake chat --conversation ann    as somebody else
    printf 'hi\\nare you open?\\n' | turntake chat
""",
)


@app.default
def chat(
    *,
    conversation: Annotated[str | None, option("Whose conversation. [your user name]", "NAME")] = None,
    timeout: Annotated[float, option("How long to wait for answers at the end, in seconds. [60]", "SECONDS")] = 60,
    url: Url = None,
    key: Key = None,
    config: Config = None,
) -> int:
    """Type messages yourself, and see them answered as turns."""
    name = conversation or me()
    try:
        full = str(ConversationKey.of(name))
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    with connected(url, key, config) as client:
        client.get("/v1/conversations", limit=1)  # says at once if there is no server, or if it wants a key
        talk = Talk(client, name, Follower(client, full, SystemClock()))
        say(f"You are {paint('bold', name)}, at {client.url}. Each line is a message; Ctrl-D ends it.")
        return talk.run(int(timeout * 1_000))


class Talk:
    """One person at a terminal. Lines are sent as they come, answers are printed as they come."""

    def __init__(self, client: Client, name: str, follower: Follower) -> None:
        self._client = client
        self._name = name
        self._follower = follower
        self._clock: Clock = SystemClock()
        self._is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._failures = 0

    def run(self, timeout_ms: int) -> int:
        """Until the input ends and everything is answered; 1 if something was not."""
        self._prompt()
        for line in lines(sys.stdin.fileno(), POLL_MS):
            if line is not None and line.strip():
                self._send(line.strip())
            self._print_answers()
        until_at = self._clock.now() + timeout_ms
        while self._follower.open_ids:
            if self._clock.now() >= until_at:
                raise TurntakeError(f"Not answered within {timeout_ms / 1000:g} s. {self._follower.why}")
            self._print_answers()
            select.select([], [], [], POLL_MS / 1_000)
        return int(self._failures > 0)

    def _send(self, text: str) -> None:
        id = str(uuid.uuid4())
        receipt = self._client.post("/v1/messages", {"conversation": self._name, "id": id, "text": text})
        if receipt["status"] == "buffered":
            self._follower.open_ids.add(id)
        waiting = counted(receipt["messages"], "message")
        due = f", due {until(receipt['dueAt'], self._clock)}: {receipt['reason']}" if receipt["dueAt"] else ""
        self._show(paint("dim", f"  {receipt['status']}; {waiting} waiting{due}"))

    def _print_answers(self) -> None:
        for turn in self._follower.ended():
            self._clear()
            self._failures += print_turn(turn)
            self._prompt()

    def _show(self, line: str) -> None:
        self._clear()
        say(line)
        self._prompt()

    def _prompt(self) -> None:
        if self._is_terminal:
            sys.stdout.write(PROMPT)
        sys.stdout.flush()

    def _clear(self) -> None:
        if self._is_terminal:
            sys.stdout.write(CLEAR_LINE)


def lines(descriptor: int, pause_ms: int) -> Iterator[str | None]:
    """The lines of an input as they are typed, and None whenever there was none for a while, until the input ends."""
    rest = b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], pause_ms / 1_000)
        if not ready:
            yield None
            continue
        piece = os.read(descriptor, 65_536)
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in whole)
        if not piece:
            if rest:
                yield rest.decode("utf-8", "replace")
            return
