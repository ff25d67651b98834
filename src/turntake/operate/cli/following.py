"""Waits for the answers to messages that were sent.

It asks the server again and again instead of watching its events: those tell only of what happens in one process, and
the turn may be answered by another.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from turntake.clock import Clock
from turntake.errors import TurntakeError
from turntake.operate.cli.output import clean, counted, paint, say, say_json
from turntake.operate.client import Client

POLL_MS = 200  # an answer is seen as soon as a person would notice, and a server hardly notices the question
LATE_MS = 5_000  # a worker takes what is due within milliseconds; after this long somebody should know
OVER = ("answered", "discarded", "rejected", "dead", "cleared", "stopped")


class Follower:
    """Finds the turns in which messages of one conversation ended."""

    def __init__(self, client: Client, key: str, clock: Clock) -> None:
        self._client = client
        self._path = f"/v1/conversations/{quote(key, safe='')}"
        self._clock = clock
        self._seen: set[str] = set()
        self._waits_since: int | None = None
        self._is_told = False
        self.why = ""
        self.open_ids: set[str] = set()
        """The messages whose turns have not ended yet."""

    def ended(self) -> Iterator[dict[str, Any]]:
        """The turns that ended since the last look and hold some of the messages, the oldest first."""
        if not self.open_ids:
            return
        conversation = self._client.get(self._path)
        self.why = clean(conversation["why"])
        for past in reversed(conversation["turns"]):
            if past["status"] in OVER and past["turnId"] not in self._seen:
                self._seen.add(past["turnId"])
                turn = self._client.get(f"/v1/turns/{past['turnId']}")
                ids = {message["id"] for message in turn["messages"]} & self.open_ids
                self.open_ids -= ids
                if ids:
                    yield turn
        self._tell_if_late(conversation)

    def _tell_if_late(self, conversation: dict[str, Any]) -> None:
        """Says once that nobody takes what is due: perhaps no process works on turns."""
        now = self._clock.now()
        if not (self.open_ids and conversation["status"] == "collecting" and " for a worker" in self.why):
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = now
        elif now - self._waits_since >= LATE_MS and not self._is_told:
            self._is_told = True
            say(paint("yellow", f"{self.why} {self._role_hint()}".rstrip()))

    def _role_hint(self) -> str:
        if self._client.get("/readyz").get("role") != "accept":
            return ""
        return "This server only accepts messages: start one with `turntake serve --role work` on the same store."


def wait_for_all(follower: Follower, clock: Clock, timeout_ms: int, pause: Any) -> Iterator[dict[str, Any]]:
    """Every turn in which the messages end. Raises TurntakeError if they have not all ended in time."""
    until_at = clock.now() + timeout_ms
    while follower.open_ids:
        yield from follower.ended()
        if follower.open_ids and clock.now() >= until_at:
            raise TurntakeError(f"No answer within {timeout_ms / 1000:g} s. {follower.why}")
        if follower.open_ids:
            pause(POLL_MS)


def print_turn(turn: dict[str, Any], json: bool = False) -> int:
    """Says how a turn ended; 1 if it was not answered."""
    is_answered = turn["status"] == "answered"
    if json:
        say_json(turn)
    elif turn["status"] == "stopped":
        say(f"{paint('yellow', 'not answered')}, since the person said to stop")
    elif not is_answered:
        is_letter = turn["status"] in ("dead", "cleared")
        error = clean((turn["error"] or turn["reason"]) if is_letter else _ending(turn))
        command = f"turntake {'letters' if is_letter else 'turns'} show {turn['turnId']}"
        say(f"{paint('red', 'not answered')} ({error}); {command}")
    else:
        waited = f"{counted(turn['messageCount'], 'message')} in one turn; the wait ended by: {turn['reason']}"
        say(f"{paint('green', 'answered')} {paint('dim', waited)}")
        for reply in turn["replies"] or ["(nothing to say)"]:
            for line in reply.splitlines():
                say(f"  {clean(line)}")
        if turn["unknownReplies"]:
            say(paint("yellow", "The platform did not say whether it took that; it may not have arrived."))
    return int(not is_answered)


def _ending(turn: dict[str, Any]) -> str:
    """How a turn ended that nobody answers; of a rejected one the reason says why, of others when it was due."""
    return f"rejected: {turn['reason']}" if turn["status"] == "rejected" else str(turn["status"])
