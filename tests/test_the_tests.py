"""What holds for the tests themselves, read from their source: they wait for events and not for time, and tests, chaos
and bench take their servers from `harness/`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Pauses, and readings of a clock that somebody would compare.
TIME = re.compile(r"(asyncio|time)\.sleep|time\.(monotonic|perf_counter|time)(_ns)?|\w*\.?clock\.sleep(_until)?")
# A script or a page in a string can pause too.
WRITTEN = re.compile(r"\b(sleep|setTimeout|wait_for_timeout)\(")
# Whoever waits less than this waits for the time to pass; a limit against hanging is longer.
LIMIT_S = 1
WAITS = {"wait", "wait_for", "join", "timeout", "notifies", "select"}
# Where time is what the thing is about, and why.
ON_PURPOSE = {
    "harness/databases.py": "`until` asks servers, which tell nobody that they are ready or that they agree",
    "harness/dying_worker.py": "processes that die or stand still in the middle of answers, and nobody else to ask",
    "harness/proxy.py": "a slow network, for chaos; its test passes the time itself",
    "harness/agent_server.py": "an agent that sends a byte now and then, against a limit of the whole answer",
    "tests/test_tutorial.py": "takes the pause out of a program that the tutorial shows",
    "tests/test_boundaries.py": "what the checker must find in the source",
    "tests/test_the_tests.py": "what the checker must find in tests",
}
MAY_IMPORT = {
    "harness": {"harness"},
    "tests": {"harness", "tests"},
    "tests/chaos": {"harness", "chaos"},
    "tests/bench": {"harness", "bench"},
    "tests/mutants": {"mutants"},
    "chaos": {"harness", "chaos"},
    "mutants": {"mutants"},
    "bench": {"harness", "bench"},
}


def real_waits(source: str) -> Iterator[str]:
    """What in a file pauses, measures time, or waits for less than a second."""
    system_clocks = {"SystemClock()", *re.findall(r"(\w+)(?:: SystemClock\b|(?:: \w+)? = SystemClock\(\))", source)}
    by_hand = {"clock", "self._clock"} - system_clocks if "VirtualClock" in source else set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            name, whose = ast.unparse(node), ast.unparse(node.value)
            if (TIME.fullmatch(name) or (whose in system_clocks and "sleep" in node.attr)) and whose not in by_hand:
                yield name
        elif isinstance(node, ast.ImportFrom) and node.module in ("time", "asyncio"):
            yield from (name.name for name in node.names if TIME.fullmatch(f"{node.module}.{name.name}"))
        elif isinstance(node, ast.Call):
            yield from short_waits(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (match[0] for match in WRITTEN.finditer(node.value))


def short_waits(call: ast.Call) -> Iterator[str]:
    """A part of a second in a call that waits. None at all, which is written 0, only lets others run."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name in WAITS:
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(argument, ast.Constant) and type(argument.value) is float and argument.value < LIMIT_S:
                yield ast.unparse(call)


def files(*folders: str) -> dict[str, str]:
    found = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in found}


def test_no_test_waits_for_time_to_pass() -> None:
    """They wait for events, for what a server says, or move a clock by hand. Chaos and bench live in real time."""
    waits = {path: list(real_waits(source)) for path, source in files("tests", "harness").items()}
    assert {path: found for path, found in waits.items() if found and path not in ON_PURPOSE} == {}
    assert [path for path in ON_PURPOSE if not waits[path]] == [], "no longer needed"


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.sleep(1)",
        "import time\nassert time.monotonic() < 5",
        "from asyncio import sleep",
        "await asyncio.sleep(0.1)",
        "clock = SystemClock()\nawait clock.sleep(300)",
        "clock = SystemClock()\nother = VirtualClock()\nawait clock.sleep(300)",
        "async def f(clock: SystemClock): await clock.sleep_until(VirtualClock().now())",
        "await SystemClock().sleep(2)",
        "await store.clock.sleep(20)",
        "await asyncio.wait([task], timeout=0.2)",
        "thread.join(0.2)",
        "await asyncio.wait_for(talk.read(), 0.1)",
        "AGENT = 'import time; time.sleep(60)'",
        "page.evaluate('new Promise(done => setTimeout(done, 500))')",
    ],
)
def test_a_wait_is_found(source: str) -> None:
    assert len(list(real_waits(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "clock = VirtualClock()\nawait clock.sleep(60_000)",
        "await asyncio.wait([task], timeout=0)",
        "await asyncio.wait_for(heard, 5)",
        "async with asyncio.timeout(20): await done.wait()",
        "process.wait(PATIENCE_S)",
        "words = ', '.join(names)",
    ],
)
def test_what_is_no_wait_is_permitted(source: str) -> None:
    assert list(real_waits(source)) == []


def ours(source: str) -> set[str]:
    """Which of our folders a file imports from."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names} & {"tests", "harness", "chaos", "bench", "mutants"}


def test_tests_chaos_and_bench_share_the_harness_and_nothing_else() -> None:
    """Only their own tests know chaos and bench."""
    wrong = []
    apart = ("tests/chaos", "tests/bench", "tests/mutants")
    for path, source in files("tests", "harness", "chaos", "bench", "mutants").items():
        home = next((home for home in apart if path.startswith(home)), path.partition("/")[0])
        wrong += [f"{path} imports {name}" for name in ours(source) - MAY_IMPORT[home]]
    assert wrong == []
