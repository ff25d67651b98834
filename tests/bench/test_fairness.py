"""What a noisy tenant costs a quiet one: a tiny run."""

from pathlib import Path

from bench.fairness import measured
from bench.servers import STORES


async def test_the_quiet_tenants_turns_are_measured_beside_the_noise(tmp_path: Path) -> None:
    with STORES["sqlite"](tmp_path) as server:
        found = await measured(server.url, ("quiet", "noisy"), 20, 1_000, 1)
    assert found.turns > 0
    assert 0 <= found.p50 <= found.p99
