"""The walls of the house, read from the source: who may import whom, and who may read the time."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turntake import plugins

SRC = Path(__file__).parents[1] / "src"
# Who may import whom: a part may use the parts before it, never those after it. Parts on one line keep apart.
ORDER = (
    ("rules",),
    ("clock", "errors", "finding", "instants", "retry_after", "tasks", "traces"),
    ("arrival", "plugins", "standard_webhooks"),
    ("buffer", "observe", "platforms"),
    ("deliver",),
    ("api_keys", "argument_checks", "claim", "rate_limits", "savings"),
    ("follow_up",),
    ("service",),
    ("accept",),
    ("http",),
    ("operate",),
    ("testing",),
)
RANK = {part: rank for rank, parts in enumerate(ORDER) for part in parts}
# `TurnTake.asgi()` returns the app that is built around it: the one arrow upwards, taken when it is called.
UPWARDS = {("turntake.service", "turntake.http.app.App"), ("turntake.service", "turntake.http.app.create")}
# `turntake bench` measures SQLite itself as a baseline, in the very tables of the store that it stands beside.
BASELINE = {
    ("turntake.operate.bench.raw", f"turntake.buffer.sqlite.{name}")
    for name in ("queries.SQL", "schema.connect", "schema.migrate")
}
# What one part shows to those after it. Everything else in these folders is an adapter, found by its name at run time.
ADAPTERS = {
    "turntake.buffer": (
        "turntake.buffer.document_watch",
        "turntake.buffer.documents",
        "turntake.buffer.janitor",
        "turntake.buffer.open",
        "turntake.buffer.rule_keeper",
        "turntake.buffer.store",
    ),
    "turntake.platforms": (
        "turntake.platforms.address",
        "turntake.platforms.channel",
        "turntake.platforms.check",
        "turntake.platforms.listener",
        "turntake.platforms.loose_json",
        "turntake.platforms.replies",
        "turntake.platforms.text_limit",
    ),
}
IMPURE = {"asyncio", "os", "random", "secrets", "socket", "sqlite3", "subprocess", "threading", "time"}
PURE = sys.stdlib_module_names - IMPURE | {"msgspec"}
CLOCKS = {"turntake.clock", "turntake.testing.clock"}
CLOCK_CALLS = (".asyncio.sleep", ".time.time", ".time.time_ns", ".datetime.now", ".datetime.utcnow")


def imported(tree: ast.AST, package: list[str]) -> Iterator[str]:
    """Every imported name in full, relative ones resolved against `package`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = package[: len(package) - node.level + 1] if node.level else []
            yield from (".".join([*home, *filter(None, [node.module]), alias.name]) for alias in node.names)


def within(name: str, *modules: str) -> bool:
    return any(f"{name}.".startswith(f"{module}.") for module in modules)


def may_import(module: str, name: str) -> bool:
    if within(module, "turntake.rules"):
        return within(name, "turntake.rules") or name.split(".")[0] in PURE
    if not within(name, "turntake") or (module, name) in UPWARDS | BASELINE:
        return True
    part, other = (f"{dotted}..".split(".")[1] for dotted in (module, name))
    if part == other or part not in RANK or other not in RANK:
        return True
    shown = ADAPTERS.get(f"turntake.{other}", ("turntake",))
    return RANK[other] < RANK[part] and (within(name, *shown) or part == "testing")


def unsorted_exports(tree: ast.Module) -> bool:
    """Whether `__all__` is out of order; the order is ruff's: CONSTANTS, Classes, functions."""
    values = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return any(list(names) != sorted(names, key=lambda n: (not n.isupper(), n)) for names in values)


def breaches(path: str, source: str) -> list[str]:
    """What the file at `path`, seen from src, does that it may not."""
    *package, stem = path.removesuffix(".py").split("/")
    module = ".".join(package if stem == "__init__" else [*package, stem])
    tree = ast.parse(source, path)
    names = set(imported(tree, package))
    used = names | {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found = [f"{module} imports {name}" for name in sorted(names) if not may_import(module, name)]
    if module not in CLOCKS:
        found += [f"{module} uses {name}" for name in sorted(used) if f".{name}".endswith(CLOCK_CALLS)]
    if stem == "__init__" and unsorted_exports(tree):
        found.append(f"{module} has an unsorted __all__")
    return found


def test_no_module_crosses_a_boundary() -> None:
    """The whole of src keeps the rules below."""
    files = sorted(SRC.rglob("*.py"))
    assert {b for f in files for b in breaches(f.relative_to(SRC).as_posix(), f.read_text("utf-8"))} == set()


# Where code names a platform on purpose outside its folder, and why.
NAMED_ON_PURPOSE = {
    "operate/bench/measure.py": "PLATFORM: the bench measures one platform's webhooks",
    "operate/cli/channels.py": "an example in a help text",
    "operate/cli/init.py": "an example in the file it writes",
    "operate/cli/reference.py": "an example in the reference page",
    "operate/cli/send.py": "an example in a help text",
    "rules/key.py": "DEFAULT_CHANNEL",
}


class DropDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        return ast.Pass() if isinstance(node.value, ast.Constant) else node


def names_a_platform(source: str) -> bool:
    """Whether code names a platform of ours. Comments and docstrings may; `generic` is also an ordinary word."""
    code = ast.unparse(DropDocstrings().visit(ast.parse(source)))
    names = "|".join(sorted(set(plugins.names("channels")) - {"generic"}))
    return bool(re.search(rf"(?i)(?:\b|_)(?:{names})(?:\b|_)|[\"']generic\b", code))


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ('if name == "twilio": pass', True),
        ("from turntake.platforms.slack import replies", True),
        ('HEARD = {"discord"}', True),
        ('key = "generic.callback_url"', True),
        ('"""As Telegram does."""\n# WhatsApp too', False),
        ("from typing import Generic", False),
    ],
)
def test_a_platform_is_found_by_its_name(source: str, is_found: bool) -> None:
    assert names_a_platform(source) == is_found


def test_no_platform_is_named_outside_its_folder() -> None:
    """What is particular to one, its channel says by an attribute; else a new platform would mean changes elsewhere."""
    root = SRC / "turntake"
    files = {f.relative_to(root).as_posix(): f.read_text("utf-8") for f in sorted(root.rglob("*.py"))}
    outside = {path for path, source in files.items() if not path.startswith("platforms/") and names_a_platform(source)}
    assert outside == NAMED_ON_PURPOSE.keys()


def port_sizes(source: str) -> dict[str, int]:
    """How many methods each abstract class has, those with a default too."""
    return {
        node.name: sum(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and "ABC" in map(ast.unparse, node.bases)
    }


def test_ports_are_measured() -> None:
    """Methods with a default count, and classes that are not abstract do not."""
    port = "class Port(ABC):\n    async def open(self): ...\n    def size(self): return 0\n    shards = 1\n"
    assert port_sizes(f"{port}\nclass Adapter(Port):\n    def close(self): ...") == {"Port": 2}


def test_no_port_behind_the_engine_has_more_than_nine_methods() -> None:
    """Whoever writes a backend sees at once what it takes. More methods are mostly a second concept: a port of its
    own, as the archive, the hints, the noted time and the lookout are."""
    folder = SRC / "turntake" / "buffer" / "engine"
    sizes = {name: size for file in folder.glob("*.py") for name, size in port_sizes(file.read_text("utf-8")).items()}
    assert sizes.keys() >= {"Archive", "Backend", "HintChannel", "Lookout", "NotedTime", "Offer"}
    assert {name: size for name, size in sizes.items() if size > 9} == {}


def test_platforms_do_not_know_each_other() -> None:
    """Except that those of Meta share code, in `meta/` and where one has the form of another."""
    folder = SRC / "turntake" / "platforms"
    found = set()
    for file in sorted(folder.glob("*/*.py")):
        own, *package = file.parent.name, "turntake", "platforms", file.parent.name
        for name in imported(ast.parse(file.read_text("utf-8")), package):
            other = name.removeprefix("turntake.platforms.").partition(".")[0]
            if name.startswith("turntake.platforms.") and (folder / other).is_dir() and other not in (own, "meta"):
                found.add((own, other))
    assert found == {("instagram", "messenger")}


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("turntake/rules/transitions.py", "import asyncio"),
        ("turntake/rules/transitions.py", "from time import monotonic"),
        ("turntake/rules/transitions.py", "import apsw"),
        ("turntake/rules/transitions.py", "from ..buffer import store"),
        ("turntake/rules/__init__.py", "from ..errors import TurntakeError"),
        ("turntake/claim/worker.py", "from turntake.buffer.sqlite import store"),
        ("turntake/claim/worker.py", "from ..buffer import memory"),
        ("turntake.buffer.sqlite.backend.py", "import turntake.deliver.http_agent"),
        ("turntake/service.py", "from .accept import intake"),
        ("turntake/accept/messages.py", "from turntake.http.limits import BodyLimit"),
        ("turntake/deliver/replies.py", "from turntake.platforms.slack.replies import Slack"),
        ("turntake/platforms/slack/replies.py", "from turntake.buffer.store import Store"),
        ("turntake/claim/alarm.py", "import asyncio\nasync def f(): await asyncio.sleep(1)"),
        ("turntake/claim/alarm.py", "from asyncio import sleep"),
        ("turntake/operate/logs.py", "import datetime as dt\nnow = dt.datetime.now(dt.UTC)"),
        ("turntake/operate/logs.py", "import time\nnow = time.time"),
        ("turntake/__init__.py", "__all__ = ['b', 'a']"),
    ],
)
def test_checker_catches(path: str, source: str) -> None:
    """Each of these is one breach, and is found."""
    assert len(breaches(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("turntake/rules/transitions.py", "import enum, msgspec\nfrom .message import Message"),
        ("turntake/claim/worker.py", "from turntake.buffer.store import Store\nfrom ..deliver import sink"),
        ("turntake.buffer.sqlite.backend.py", "from ..store import Store\nfrom turntake import clock, errors"),
        ("turntake/clock.py", "import asyncio, time\nnow, sleep = time.time, asyncio.sleep"),
        ("turntake/http/app.py", "from ..accept import messages\nfrom ..service import TurnTake"),
        ("turntake/__init__.py", "__all__ = ['LIMIT', 'Claim', 'due_at']"),
    ],
)
def test_checker_permits(path: str, source: str) -> None:
    """Each of these is in order, and is left alone."""
    assert breaches(path, source) == []
