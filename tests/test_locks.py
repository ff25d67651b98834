"""The two lock files agree, `make serve` installs what the service needs, and neither file names a registry."""

import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
EVERYTHING = "constraints.txt"
RUNTIME = "constraints-runtime.txt"


def pins(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Package → version and hashes."""
    text = (ROOT / name).read_text().replace("\\\n", "")
    lines = [line.split() for line in text.splitlines() if line]
    return {
        package: (version, frozenset(word for word in words if word.startswith("--hash=")))
        for words in lines
        for package, version in [words[0].split("==")]
    }


def needed(distribution: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """What an installed distribution needs on this machine, directly and indirectly."""
    found: set[str] = set()
    todo = [(distribution, extras)]
    while todo:
        name, wanted = todo.pop()
        for requirement in map(Requirement, requires(name) or []):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in wanted or {""}):
                package = canonicalize_name(requirement.name)
                if package not in found:
                    found.add(package)
                    todo.append((package, frozenset(requirement.extras)))
    return found


def test_the_runtime_is_a_part_of_everything() -> None:
    everything = pins(EVERYTHING)
    for package, pin in pins(RUNTIME).items():
        assert everything[package] == pin, f"{package} differs: run `make lock`"
        assert pin[1], f"{package} has no hash"


def test_the_runtime_holds_all_that_the_service_needs_and_what_builds_it() -> None:
    assert needed("turntake") - set(pins(RUNTIME)) == set()
    assert "uv-build" in pins(RUNTIME)


def test_the_runtime_holds_no_tool() -> None:
    dev = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    tools = {canonicalize_name(Requirement(line).name) for line in dev if isinstance(line, str)}
    assert tools & set(pins(RUNTIME)) == set()


def test_the_lock_files_name_no_registry() -> None:
    for name in (EVERYTHING, RUNTIME):
        assert not re.search(r"https?:|--index|--find-links", (ROOT / name).read_text()), name


def test_serve_waits_only_for_the_runtime() -> None:
    """`make --dry-run` in a tree without .venv shows what a fresh clone would do."""
    command = ["make", "--dry-run", "--always-make", "serve"]
    plan = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=20, check=True).stdout
    assert f"-r {RUNTIME}" in plan
    assert f"-r {EVERYTHING}" not in plan
