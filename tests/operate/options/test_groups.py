"""The typed options: one struct per section, each default once, and nothing imported that is not needed."""

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

import turntake
from turntake import TurnTake
from turntake.http.app import create
from turntake.operate.options.catalogue import own_settings
from turntake.operate.options.groups import Options
from turntake.operate.options.sources import load

PACKAGE = Path(turntake.__file__).parent
NUMBERS = [s for s in own_settings() if type(s.default) is int and s.default > 1]
PLUGINS = """
import sys
import turntake.operate.options.sources, turntake.operate.options.groups
print([name for name in sys.modules if name.startswith("turntake.platforms.") and name.count(".") > 2])
print([name for name in ("httpx2", "starlette", "uvicorn", "cyclopts", "nacl") if name in sys.modules])
"""


def test_with_nothing_set_everything_has_the_default_of_its_struct() -> None:
    loaded = load(environ={})
    assert msgspec.structs.replace(loaded, accounts=(), sources=Options().sources) == Options()


def test_importing_the_options_imports_no_platform_and_no_http_library() -> None:
    """What is installed is looked for by `load`, not by an import."""
    done = subprocess.run([sys.executable, "-c", PLUGINS], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[]", "[]"]


@pytest.mark.parametrize(
    ("function", "parameter", "default"),
    [
        (TurnTake, "store", Options().store),
        (TurnTake, "role", Options().role),
        (TurnTake, "rules", Options().rules),
        (TurnTake, "concurrency", Options().worker.concurrency),
        (TurnTake, "lease_ms", Options().worker.lease_ms),
        (TurnTake, "shutdown_ms", Options().worker.shutdown_ms),
        (TurnTake, "keep_ms", Options().history.keep_ms),
        (TurnTake, "dedupe_keep_ms", Options().dedupe.keep_ms),
        (TurnTake, "letters_keep_ms", Options().letters.keep_ms),
        (create, "max_body_bytes", Options().http.body_bytes),
        (create, "receive_ms", Options().http.receive_ms),
        (create, "max_webhook_bytes", Options().webhooks.body_bytes),
        (create, "groups", Options().webhooks.groups),
    ],
)
def test_a_library_user_gets_the_same_defaults(
    function: Callable[..., object], parameter: str, default: object
) -> None:
    assert inspect.signature(function).parameters[parameter].default == default


def defined(source: str) -> Iterator[tuple[str, int]]:
    """Every name in a module that a number is given to: constants, fields, defaults of parameters."""
    for node in ast.walk(ast.parse(source)):
        pairs: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.arguments):
            names = [argument.arg for argument in (*node.posonlyargs, *node.args)]
            pairs += zip(reversed(names), reversed(node.defaults), strict=False)
            pairs += zip((argument.arg for argument in node.kwonlyargs), node.kw_defaults, strict=True)
        elif isinstance(node, ast.AnnAssign):
            pairs.append((ast.unparse(node.target), node.value))
        elif isinstance(node, ast.Assign):
            pairs += [(ast.unparse(target), node.value) for target in node.targets]
        yield from ((name, number) for name, value in pairs if value and (number := _number(value)) is not None)


def _number(value: ast.expr) -> int | None:
    """What `3 * MEBIBYTE` comes to; None for what is not a number."""
    match value:
        case ast.Constant(int(number)):
            return number
        case ast.Name(name):
            return {"DAY_MS": 86_400_000, "MEBIBYTE": 1_048_576}.get(name)
        case ast.BinOp(left, ast.Mult(), right):
            factors = _number(left), _number(right)
            return None if factors[0] is None or factors[1] is None else factors[0] * factors[1]
    return None


@cache
def written() -> list[tuple[str, str, int]]:
    """Every such name in the package, with its file."""
    files = [path for path in PACKAGE.rglob("*.py") if "testing" not in path.parts]
    return [(path.name, name, number) for path in files for name, number in defined(path.read_text("utf-8"))]


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda setting: setting.key)
def test_no_default_is_written_twice(setting: object) -> None:
    """A second place would drift from the first: whoever needs the number takes it from the struct.

    Words such as "all" are no proof of a copy, and the published test kit has times of its own.
    """
    (wanted,) = [s for s in NUMBERS if s is setting]
    names = {wanted.name, f"max_{wanted.name}", f"default_{wanted.name}"}
    places = [
        f"{file}: {name}" for file, name, number in written() if number == wanted.default and name.lower() in names
    ]
    assert len(places) == 1, places


@pytest.mark.parametrize(
    "source",
    [
        "LEASE_MS = 60_000",
        "def f(a, lease_ms: int = 60_000): ...",
        "async def f(*, lease_ms=60 * 1_000): ...",
        "class A:\n    lease_ms: int = 60_000",
    ],
)
def test_a_copied_default_would_be_found(source: str) -> None:
    assert [(name.lower(), number) for name, number in defined(source)] == [("lease_ms", 60_000)]
