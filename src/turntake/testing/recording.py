"""Recorded webhooks: one JSON file each, with what the request says and what must be read in it.

    {
      "note": "two texts in one request",
      "options": {"secret": "sesame"},
      "request": {"method": "POST", "url": "https://…", "headers": {…}, "body": "…"},
      "clock": 1763200000000,
      "own": false,
      "events": [{"kind": "message", "sender": "ann", "text": "hi"}]
    }

`options` is what the receiver is set up with, `clock` what its clock shows. A body that is not text comes with
`"body_encoding": "base64"`. `own` marks what our own side said. Only those fields of an event that are there
must be equal.
"""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from turntake.platforms.channel import ChatEvent, Request

# For platforms that sign no time, any will do.
SOME_TIME = 1_763_200_000_000
SECONDS_BELOW = 100_000_000_000


class RecordedRequest(msgspec.Struct, frozen=True):
    """A request as it is written in the file; header names may be in any case."""

    method: str = "POST"
    url: str = "https://turntake.test/webhooks"
    headers: Mapping[str, str] = {}
    body: str = ""
    body_encoding: Literal["utf-8", "base64"] = "utf-8"

    def restored(self) -> Request:
        body = base64.b64decode(self.body) if self.body_encoding == "base64" else self.body.encode()
        return Request(self.method, self.url, {name.lower(): value for name, value in self.headers.items()}, body)


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook and what it means."""

    note: str
    events: Sequence[Mapping[str, Any]]
    options: Mapping[str, str] = {}
    clock: int = SOME_TIME
    own: bool = False
    name: str = ""
    written: RecordedRequest = msgspec.field(name="request")

    @property
    def request(self) -> Request:
        return self.written.restored()

    @property
    def now(self) -> int:
        """What the receiver's clock shows, in milliseconds; the file may say it in seconds."""
        return self.clock * 1000 if self.clock < SECONDS_BELOW else self.clock


def recordings_in(folder: Path) -> list[Recording]:
    """Those of a folder, by name."""
    files = sorted(folder.glob("*.json"))
    return [
        msgspec.structs.replace(msgspec.json.decode(file.read_bytes(), type=Recording), name=file.stem)
        for file in files
    ]


def differences(events: Sequence[ChatEvent], recorded: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was read otherwise than recorded; [] if nothing."""
    if len(events) != len(recorded):
        return [f"{len(events)} events were read, {len(recorded)} are recorded: {[event.kind for event in events]}"]
    return [
        f"event {index}, {name}: {actual!r} was read, {value!r} is recorded"
        for index, (event, expected) in enumerate(zip(events, recorded, strict=True))
        for name, value in expected.items()
        if not _matches(actual := getattr(event, name), value)
    ]


_CAMEL = {"mimeType": "mime_type"}


def _matches(actual: Any, recorded: Any) -> bool:
    if isinstance(actual, tuple):
        pairs = list(zip(actual, recorded, strict=False))
        return len(actual) == len(recorded) and all(_is_like(one, other) for one, other in pairs)
    if isinstance(actual, msgspec.Struct):
        return isinstance(recorded, Mapping) and _is_like(actual, recorded)
    return bool(actual == recorded)


def _is_like(actual: msgspec.Struct, recorded: Mapping[str, Any]) -> bool:
    return all(getattr(actual, _CAMEL.get(name, name)) == value for name, value in recorded.items())
