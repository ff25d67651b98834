"""Ours beside the peers that do the same job: the same bursts, one client process, one worker process, one machine.

steady: bursts at a steady rate. flood: as fast as it goes. waiting: what a message costs while many wait (ours only),
small and large crowds by turns in one process; CPU and bytes written hold on a busy machine too, elapsed time does not.
Peers get a share of the load, so that they show what they can do and not how long their queue gets: DBOS a tenth of the
rate and a twentieth of the flood, the others half of the flood.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from bench.bursts import Plan, flood, steady
from bench.contenders import CONTENDERS, Contender
from bench.figures import Figures
from bench.peers import CannotRun
from bench.report import as_data, number, table, waiting_figures, waiting_table
from bench.run import measure
from bench.waiting import waiting

LOADS = ("steady", "flood", "waiting")
FLOOD_LIMIT_S = 60.0
QUICK = 5


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    data: dict[str, object] = {}
    tables: list[str] = []
    for load in options.loads:
        if load == "waiting":
            _measure_waiting(options, data, tables)
            continue
        found = _measure_bursts(load, options)
        data[load] = as_data(load, found)
        tables += [table(load, found)] if found else []
    print("\n" + "\n\n".join(tables))
    if options.json:
        options.json.write_text(json.dumps(data, indent=2))
    return 0 if tables else 1


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_names, default=list(CONTENDERS), help=", ".join(CONTENDERS))
    parser.add_argument("--loads", type=_names, default=list(LOADS), help=", ".join(LOADS))
    parser.add_argument("--quick", action="store_true", help="a fifth of the load, for a first look")
    parser.add_argument("--rate", type=float, default=900, help="messages a second, steady")
    parser.add_argument("--seconds", type=float, default=20, help="how long, steady")
    parser.add_argument("--idle", type=float, default=5, help="how long to watch the idle store after that, in seconds")
    parser.add_argument("--messages", type=int, default=50_000, help="how many, flood")
    parser.add_argument("--people", type=int, default=2_000, help="who talk at a time, flood")
    parser.add_argument("--waiting", type=_sizes, default=[1_000, 100_000], help="how many wait; 1000,1000000 in full")
    parser.add_argument("--steps", type=int, default=10_000, help="messages and turns while they wait")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args(arguments)
    for word, known in ((options.only, CONTENDERS), (options.loads, LOADS)):
        if unknown := [name for name in word if name not in known]:
            parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    if options.quick:
        options.seconds, options.messages, options.steps = (
            options.seconds / 5,
            options.messages // 5,
            options.steps // 5,
        )
    return options


def _measure_bursts(load: str, options: argparse.Namespace) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    for name in options.only:
        contender = CONTENDERS[name]
        plan = _plan(load, contender, options)
        print(f"  {load}, {name}: {len(plan.bursts)} bursts", flush=True)
        try:
            found[name] = asyncio.run(measure(contender, plan, idle_s=options.idle if load == "steady" else 0.0))
        except CannotRun as reason:
            print(f"    skipped: {reason}", flush=True)
        else:
            print(f"    {_in_short(found[name])}", flush=True)
    return found


def _plan(load: str, contender: Contender, options: argparse.Namespace) -> Plan:
    if load == "steady":
        return steady(options.seed, options.rate * contender.rate_share, options.seconds)
    people, messages = options.people * contender.flood_share, options.messages * contender.flood_share
    return flood(options.seed, int(messages), max(1, int(people)), FLOOD_LIMIT_S)


def _measure_waiting(options: argparse.Namespace, data: dict[str, object], tables: list[str]) -> None:
    for name in options.only:
        contender = CONTENDERS[name]
        if not contender.is_ours:
            continue
        print(f"  waiting, {name}: {' and '.join(map(str, options.waiting))} conversations", flush=True)
        try:
            contender.sides()
        except CannotRun as reason:
            print(f"    skipped: {reason}", flush=True)
            continue
        crowds = asyncio.run(waiting(contender.store, options.waiting, options.steps))
        data[f"waiting {name}"] = {"sizes": options.waiting, **waiting_figures(crowds)}
        tables.append(waiting_table(name, crowds))


def _in_short(found: Figures) -> str:
    return (
        f"{number(found.handed_over_a_second)} messages/s, late p99 {number(found.lateness_p99)} ms, "
        f"CPU {number(found.cpu)} s for 1,000, {found.whole_bursts} bursts whole, {found.split_bursts} split, "
        f"{found.missing} messages missing"
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _sizes(text: str) -> list[int]:
    return [int(size) for size in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
