"""`python -m chaos [--store NAME|main|all] [--seconds 120] [--people N] [--seed N] [--previous PYTHON]`"""

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from chaos.report import broken, keep, summary
from chaos.run import run
from chaos.stores import MAIN, STORES


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--store", choices=(*STORES, "main", "all"), default="all", help="main: the first three")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("CHAOS_SECONDS", "120")))
    parser.add_argument("--people", type=int)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--previous", help="the Python of an earlier release: half of the processes run it until an upgrade at the end"
    )
    options = parser.parse_args()
    stores = {"all": tuple(STORES), "main": MAIN}.get(options.store, (options.store,))
    failed = [store for store in stores if not judged(store, options)]
    return 1 if failed else 0


def judged(store: str, options: argparse.Namespace) -> bool:
    """Runs, prints, and says whether every promise was kept; if not, the folder with the logs stays."""
    print(f"{store}, seed {options.seed}, {options.seconds:.0f} s", flush=True)
    folder = Path(tempfile.mkdtemp(prefix=f"turntake-chaos-{store}-"))
    try:
        outcome = asyncio.run(run(store, options.seconds, options.people, options.seed, folder, options.previous))
    except BaseException:
        print(f"  it broke off; the logs are in {folder}")
        raise
    for line in summary(outcome):
        print(line)
    if not outcome.violations:
        shutil.rmtree(folder)
        return True
    for line in broken(outcome.violations, outcome.history):
        print(line)
    keep(outcome.history, folder)
    print(f"  the logs and the history are in {folder}")
    return False


if __name__ == "__main__":
    sys.exit(main())
