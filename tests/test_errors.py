"""The tree of errors: drawn as it is, whole, and with messages of its own."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import turntake
from turntake import errors
from turntake.errors import CallFailed, Forged, MissingExtra, Problem, RateLimited, RetryLater, TurntakeError

SRC = Path(__file__).parents[1] / "src"
CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, TurntakeError)]


ALWAYS_WORDED = (Forged, MissingExtra, Problem, RateLimited, RetryLater)
"""Errors that always say something of their own."""


def drawn() -> Iterator[tuple[str, str]]:
    """Each error of the drawing with the one above it."""
    path: list[str] = []
    for indent, name in re.findall(r"^    ([│├└─ ]*)(\w+Error|[A-Z]\w+)(?:  .*)?$", errors.__doc__ or "", re.MULTILINE):
        path = [*path[: len(indent) // 4], name]
        yield name, path[-2] if len(path) > 1 else "Exception"


def test_the_tree_in_the_docstring_is_that_of_the_classes() -> None:
    assert dict(drawn()) == {kind.__name__: kind.__base__.__name__ for kind in CLASSES if kind.__base__}


def test_no_module_has_an_error_outside_the_tree() -> None:
    """Private ones, which never leave their module, are nobody's business."""
    outside = []
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and path.name != "errors.py":
                bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
                outside += [node.name] * bool(bases & {"Exception", *(kind.__name__ for kind in CLASSES)})
    assert outside == []


@pytest.mark.parametrize(
    "error",
    [*(kind() for kind in CLASSES if kind not in ALWAYS_WORDED), RetryLater(1)],
    ids=lambda error: type(error).__name__,
)
def test_without_an_argument_the_message_is_the_first_line_of_the_docstring(error: TurntakeError) -> None:
    assert str(error) == (inspect.getdoc(type(error)) or "").split("\n")[0] != ""


def test_what_a_handler_may_meet_is_exported() -> None:
    public = {kind.__name__ for kind in CLASSES} & set(turntake.__all__)
    assert public == {
        "Away",
        "ClaimLost",
        "ConfigurationError",
        "GiveUp",
        "InvalidMessage",
        "MissingExtra",
        "RateLimited",
        "RetryLater",
        "StoreUnavailable",
        "TurntakeError",
    }


def test_a_failed_call_says_whether_it_was_handed_over() -> None:
    """An answer that is wrong was certainly asked for."""
    assert CallFailed("no").is_handed_over
    assert not CallFailed("no", reason="(ConnectError)", is_handed_over=False).is_handed_over
