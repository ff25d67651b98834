"""The load that every contender gets. The same seed makes the same bursts."""

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path

BURST = 5
PAUSE_MS = (50, 200)
SILENCE_MS = 1_000
TEXT = "and it has not arrived yet"


@dataclass(frozen=True, slots=True)
class Burst:
    """One person's messages: the first at `start_ms` of the run, each `offsets_ms` after that one."""

    conversation: str
    start_ms: int
    offsets_ms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the client process does. With `people`, so many talk at a time, one burst after the other.

    No burst starts later than `limit_ms`, so that a slow contender ends as well.
    """

    bursts: tuple[Burst, ...]
    limit_ms: int
    people: int = 0
    silence_ms: int = SILENCE_MS
    text: str = TEXT

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "Plan":
        fields = json.loads(path.read_text())
        bursts = tuple(Burst(b["conversation"], b["start_ms"], tuple(b["offsets_ms"])) for b in fields.pop("bursts"))
        return cls(bursts, **fields)


def steady(seed: int, rate: float, seconds: float) -> Plan:
    """`rate` messages a second in all, whatever the answers take."""
    chance = random.Random(seed)
    every_ms = 1_000 * BURST / rate
    count = max(1, int(rate * seconds / BURST))
    bursts = tuple(Burst(f"s{n}", int(n * every_ms), _offsets(chance)) for n in range(count))
    return Plan(bursts, int(3_000 * seconds))


def flood(seed: int, messages: int, people: int, limit_s: float) -> Plan:
    """As fast as it goes: `people` talk at a time, and as soon as one has finished the next one starts.

    They take up at different moments, as people do: nobody pays for all of them saying hello at once.
    """
    chance = random.Random(seed)
    starts = [chance.randrange(BURST * PAUSE_MS[1]) for _ in range(people)]
    count = max(1, messages // BURST)
    bursts = tuple(Burst(f"f{n}", starts[n] if n < people else 0, _offsets(chance)) for n in range(count))
    return Plan(bursts, int(1_000 * limit_s), people)


def _offsets(chance: random.Random) -> tuple[int, ...]:
    offsets = [0]
    while len(offsets) < BURST:
        offsets.append(offsets[-1] + chance.randint(*PAUSE_MS))
    return tuple(offsets)
