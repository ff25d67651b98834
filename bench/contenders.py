"""Who takes part: the store each needs, how its two sides start, and how much load it gets."""

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from bench import peers
from turntake import plugins
from turntake.errors import TurntakeError

Command = list[str]


@dataclass(frozen=True, slots=True)
class Contender:
    """`sides` gives the commands of the client and the worker, and raises CannotRun where there are none.

    The shares say how much of the usual load it gets: one that is known to be slow would only measure its own queue.
    """

    name: str
    store: str
    sides: Callable[[], tuple[Command, Command]]
    rate_share: float = 1.0
    flood_share: float = 1.0
    is_ours: bool = False


def _ours(store: str) -> Contender:
    def sides() -> tuple[Command, Command]:
        try:
            plugins.load("stores", store)
        except (ImportError, TurntakeError) as error:
            raise peers.CannotRun(str(error)) from error
        return _python(sys.executable, "bench.ours")

    return Contender(store, store, sides, is_ours=True)


def _bullmq() -> tuple[Command, Command]:
    folder = peers.bullmq()
    node = shutil.which("node") or "node"
    return [node, str(folder / "client.mjs")], [node, str(folder / "worker.mjs")]


def _dbos() -> tuple[Command, Command]:
    return _python(str(peers.dbos()), "bench.dbos_peer")


def _python(python: str, module: str) -> tuple[Command, Command]:
    return [python, "-m", module, "client"], [python, "-m", module, "worker"]


CONTENDERS = {
    contender.name: contender
    for contender in (
        _ours("redis"),
        Contender("bullmq", "redis", _bullmq, flood_share=0.5),
        Contender("recipe", "redis", lambda: _python(sys.executable, "bench.recipe"), flood_share=0.5),
        _ours("postgresql"),
        Contender("dbos", "postgresql", _dbos, rate_share=0.1, flood_share=0.05),
        _ours("sqlite"),
    )
}
RATIOS = (("redis", "bullmq"), ("redis", "recipe"), ("postgresql", "dbos"))
