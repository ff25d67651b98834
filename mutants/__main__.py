"""`python -m mutants [--count 60 | --all] [--seed N] [--only PATH ...] [--near] [--list]`"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from mutants import python_source, script_source
from mutants.mutant import Mutant
from mutants.stages import FOLDERS
from mutants.trial import Trial, Verdict

PROJECT = Path(__file__).parents[1]
# About half an hour on two cores.
COUNT = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="how many, drawn by the seed")
    parser.add_argument("--all", action="store_true", help="every one, which takes many hours")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", nargs="+", default=FOLDERS, help="folders or files of src/turntake")
    parser.add_argument("--near", action="store_true", help="ask the nearest tests only: quick, with more survivors")
    parser.add_argument("--list", action="store_true", help="print them and run nothing")
    options = parser.parse_args()
    found = [mutant for place in options.only for mutant in mutants_in(PROJECT, place)]
    chosen = found if options.all else drawn(found, options.count, options.seed)
    print(f"{len(chosen)} of {len(found)} mutants, seed {options.seed}", flush=True)
    if options.list:
        print("\n".join(map(str, chosen)))
        return 0
    with tempfile.TemporaryDirectory(prefix="turntake-mutants-") as folder:
        verdicts = judged(Trial(PROJECT, Path(folder), 1 if options.near else None), chosen)
    print("\n".join(table(verdicts)))
    return 0


def mutants_in(project: Path, place: str) -> list[Mutant]:
    """All of a folder or a file, in the order of paths and lines."""
    path = project / place
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    found: list[Mutant] = []
    for file in files:
        name = file.relative_to(project).as_posix()
        if file.suffix == ".py":
            found += python_source.mutants_of(name, file.read_bytes())
        elif file.suffix in (".lua", ".sql"):
            found += script_source.mutants_of(name, file.read_bytes())
    return found


def drawn(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """The same for the same seed and source; in the order of the source, so that a file's come together."""
    places = random.Random(seed).sample(range(len(mutants)), min(count, len(mutants)))
    return [mutants[place] for place in sorted(places)]


def judged(trial: Trial, chosen: list[Mutant]) -> list[Verdict]:
    verdicts = []
    for number, mutant in enumerate(chosen, 1):
        verdict = trial.judge(mutant)
        verdicts.append(verdict)
        says = f"killed by {verdict.killed_by}" if verdict.killed_by else "SURVIVED"
        print(f"{number:4} {verdict.seconds:5.0f} s  {mutant}: {says}", flush=True)
    return verdicts


def table(verdicts: list[Verdict]) -> list[str]:
    """How many of each folder were noticed, and then every survivor."""
    alive = [verdict.mutant for verdict in verdicts if not verdict.killed_by]
    tried, survived = (Counter(map(_folder, mutants)) for mutants in ([v.mutant for v in verdicts], alive))
    lines = ["", f"{'folder':<34} {'mutants':>8} {'killed':>8} {'survived':>8}"]
    for name, count in sorted(tried.items()):
        lines.append(f"{name:<34} {count:>8} {count - survived[name]:>8} {survived[name]:>8}")
    lines.append(f"{'all':<34} {len(verdicts):>8} {len(verdicts) - len(alive):>8} {len(alive):>8}")
    return [*lines, "", "Survivors:" if alive else "No survivors.", *(f"  {mutant}" for mutant in alive)]


def _folder(mutant: Mutant) -> str:
    return mutant.path.rpartition("/")[0]


if __name__ == "__main__":
    sys.exit(main())
