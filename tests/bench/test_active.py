"""What an append costs with many conversations: a tiny run."""

from pathlib import Path

from bench.active import measured
from bench.servers import STORES


async def test_what_is_counted_is_what_further_messages_cost(tmp_path: Path) -> None:
    """Each is compared and written, and brings its deadline: three commands, and a few for each batch."""
    with STORES["redis"](tmp_path) as server:
        cost = await measured(server, 300, 1_000)
    assert 3 < cost.commands < 5
    assert cost.total_us > 0
