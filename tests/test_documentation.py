"""What the documents say is true: code runs, links lead somewhere, commands exist, decisions are numbered."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from turntake import Arrival, ConversationKey, Message, Turn, TurnTake
from turntake.deliver.cloudevents import batch_ready
from turntake.testing.clock import VirtualClock

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
DEPLOY = sorted((ROOT / "deploy").iterdir())
EXAMPLE_AT = 1_794_735_000_250  # 2026-11-15T09:30:00.250Z, the first arrival in docs/reference/event.md
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\((?!https?://)([^)#\s]+)(?:#[^)]*)?\)")


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def blocks(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a document: language and content."""
    return _BLOCK.findall(text)


def commands(text: str) -> list[str]:
    """Every command line that a document shows or names."""
    shown = [
        line.strip().removeprefix("$ ")
        for language, block in blocks(text)
        for line in block.replace("\\\n", " ").splitlines()
        if language == "sh" or (language == "console" and line.strip().startswith("$ "))
    ]
    named = re.findall(r"`([^`\n]+)`", _BLOCK.sub("", text))
    return [part.strip() for line in [*shown, *named] for part in re.split(r"&&|[;|#]", line)]


def test_the_readme_code_prints_what_the_readme_says() -> None:
    readme = (ROOT / "README.md").read_text()
    code = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", readme, re.DOTALL)
    assert code is not None
    assert run("-c", code[1]) == code[2]


def test_the_timeline_fits_a_terminal() -> None:
    timeline = blocks((ROOT / "README.md").read_text())[0][1]
    assert "turntake" in timeline
    assert max(map(len, timeline.splitlines())) <= 80


def test_the_python_reference_runs_and_prints_what_it_says() -> None:
    page = blocks((ROOT / "docs" / "reference" / "python.md").read_text())
    ran = 0
    for (language, code), (following, output) in zip(page, [*page[1:], ("", "")], strict=True):
        if language == "python":
            printed = run("-c", code)
            assert printed == ("" if following else output), code
            ran += 1
    assert ran >= 6


def test_the_python_reference_names_everything_public() -> None:
    import turntake

    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    parameters = [*inspect.signature(turntake.TurnTake).parameters, *turntake.Rules.__struct_fields__]
    assert [
        name for name in [*turntake.__all__, *parameters] if f"`{name}" not in page and f" {name}" not in page
    ] == []


async def test_the_event_in_the_reference_is_what_the_defaults_give() -> None:
    """Two messages 0.9 s apart, with no rule set."""
    clock, events = VirtualClock(EXAMPLE_AT), []

    async def agent(turn: Turn) -> None:
        events.append(json.loads(msgspec.json.encode(batch_ready(turn))))

    key = ConversationKey.of("4917012345", channel="whatsapp", account="106540352242922")
    async with TurnTake("memory://", agent=agent, clock=clock) as turns:
        await turns.accept([Arrival(key, Message("wamid.1", "Hey", "Ada", sent_at=EXAMPLE_AT - 250))])
        await clock.advance(900)
        await turns.accept([Arrival(key, Message("wamid.2", "is my order there yet?", "Ada", EXAMPLE_AT + 750))])
        await clock.advance(60_000)
    page = blocks((ROOT / "docs" / "reference" / "event.md").read_text())
    shown, given = json.loads(next(block for language, block in page if language == "json")), events[0]
    # Every store has a secret of its own, so the last part of the token is another one each time.
    tokens = [event["data"].pop("completionToken") for event in (shown, given)]
    (beginning,) = {token.rpartition(".")[0] for token in tokens}
    assert (beginning, {len(token) for token in tokens}) == (f"ttc_{given['id']}", {len(beginning) + 44})
    assert shown == given


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_target_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {command.split()[1] for command in commands(document.read_text()) if re.match(r"make [a-z]", command)}
    assert named - targets == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_and_flag_exists(document: Path) -> None:
    """The page of the command line is generated, and says what there is."""
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    sections = dict(re.findall(r"^## (turntake[\w ]*)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    for command in commands(document.read_text()):
        words = re.match(r"(?:\S*/|[A-Z_]+=\S+ )*(turntake(?: [a-z]+)*)", command)
        if words is None or " " not in words[1]:
            continue
        *_, name = [name for name in sections if f"{words[1]} ".startswith(f"{name} ")]
        assert name != "turntake", f"{document.name} names {command!r}"
        for flag in re.findall(r"(?<=\s)--[a-z][a-z-]*", command):
            assert flag in sections[name] + page.split("## turntake serve")[0], f"{document.name}: {command!r}"


@pytest.mark.parametrize("document", [*DOCUMENTS, *DEPLOY], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_variable_exists(document: Path) -> None:
    """A name that ends in `_…` stands for several; a plug-in of the reader's own brings its own."""
    settings = (ROOT / "docs" / "reference" / "settings.md").read_text()
    named = set(re.findall(r"TURNTAKE_[A-Z_]*[A-Z]\b(?!_?…)", document.read_text()))
    known = set(re.findall(r"TURNTAKE_[A-Z_]+", settings)) | {"TURNTAKE_PIGEON_SECRET", "TURNTAKE_TEST_HISTORIES"}
    assert named - known == set()


def test_the_files_for_docker_name_files_that_exist() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    assert len(copied) >= 3
    assert [name for line in copied for name in line.split() if not (ROOT / name).exists()] == []
    for compose in (ROOT / "deploy").glob("compose*.yaml"):
        assert "dockerfile: deploy/Dockerfile" in compose.read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_installed_from_where_it_is_not(document: Path) -> None:
    """turntake is not on a registry yet: an extra can be added where it is installed, and that is all."""
    for command in commands(document.read_text()):
        assert not re.search(r"pip install (?:-\S+ )*['\"]?turntake['\"]?(?:\s|$)", command), command


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_without_a_server(example: Path) -> None:
    assert run(str(example)).strip()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in _LINK.findall(document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_architecture_names_files_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for path in re.findall(r"`((?:tests|chaos|bench|docs)/[\w/.]*)`", text):
        assert (ROOT / path).exists(), path


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = [int(path.name[:4]) for path in sorted((ROOT / "docs" / "decisions").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_public_name_is_explained() -> None:
    import turntake

    undocumented = [name for name in turntake.__all__ if not getattr(getattr(turntake, name), "__doc__", None)]
    assert undocumented == []
