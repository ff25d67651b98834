"""The operator's side of stores: each kind brings its own examination and its own maintenance."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Self

import pytest

from turntake import plugins
from turntake.buffer.memory import MemoryStore
from turntake.buffer.open import Examined, Maintained, open_store
from turntake.clock import DAY_MS, Clock, SystemClock
from turntake.errors import MissingExtra, StoreUnavailable
from turntake.finding import Finding
from turntake.operate.cli import main
from turntake.operate.doctor import stores
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import say

Output = pytest.CaptureFixture[str]


class Shared(MemoryStore, Examined, Maintained):
    """A store as a plug-in might bring it. It remembers what was asked of it; `away` does not answer."""

    asked: list[str]

    @classmethod
    def open(cls, url: str, clock: Clock) -> Self:
        store = super().open(url, clock)
        store.asked.append(url)
        return store

    @classmethod
    async def examine(cls, url: str, clock: Clock) -> AsyncIterator[Finding]:
        if "away" in url:
            raise ConnectionError(f"cannot reach {url}")
        yield Finding("ok", "store", "it answers")
        yield Finding("warn", "persistence", "it forgets")

    async def __aenter__(self) -> Self:
        if "away" in self.asked[-1]:
            raise StoreUnavailable
        return self

    async def rebuild(self) -> int:
        self.asked.append("rebuild")
        return 1_234

    async def finish_upgrade(self) -> list[str]:
        self.asked.append("finish")
        return ["0002_post_drop_column"]


def register(monkeypatch: pytest.MonkeyPatch, *stores: EntryPoint) -> None:
    """Only these stores are installed; channels and sinks stay, since a command reads them once for good."""

    def registered(group: str) -> EntryPoints:
        return EntryPoints(stores) if group == "turntake.stores" else entry_points(group=group)

    monkeypatch.setattr(plugins, "entry_points", registered)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`shared://` is registered next to our own stores."""
    entry = EntryPoint("shared", f"{__name__}:Shared", "turntake.stores")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Shared.__module__])
    register(monkeypatch, *entry_points(group="turntake.stores"), entry)
    monkeypatch.setattr(Shared, "asked", [], raising=False)
    return Shared.asked


async def examined(url: str) -> list[Finding]:
    return [finding async for finding in stores.examine(url, SystemClock())]


async def test_a_store_is_examined_by_its_own_kind(asked: list[str]) -> None:
    """And it is not opened for that."""
    assert [finding.subject for finding in await examined("shared://x")] == ["store", "persistence"]
    assert asked == []


async def test_a_library_that_complains_gives_nothing_away(asked: list[str]) -> None:
    """Its words may hold the URL; the kind of the error is enough to go on."""
    assert await examined("shared://me:hunter2@away") == [Finding("fail", "store", "failed: ConnectionError")]


async def test_a_store_that_has_no_examination_is_named_and_not_opened(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "Examined", Path)
    (finding,) = await examined("shared://me:hunter2@host")
    assert finding == Finding("ok", "store", "shared://me:…@host (not opened)")


async def test_rebuilding_and_finishing_an_upgrade_are_reported(asked: list[str]) -> None:
    rebuilt = await stores.rebuild("shared://x", SystemClock())
    assert rebuilt == Finding("ok", "rebuild", "1,234 entries of the index of deadlines mended")
    finished = await stores.finish_upgrade("shared://x", SystemClock())
    assert finished == Finding("ok", "upgrade", "0002_post_drop_column")
    assert asked == ["shared://x", "rebuild", "shared://x", "finish"]


async def test_a_rebuild_or_upgrade_without_work_says_so(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(self: Shared) -> int:
        return 0

    async def nothing(self: Shared) -> list[str]:
        return []

    monkeypatch.setattr(Shared, "rebuild", none)
    monkeypatch.setattr(Shared, "finish_upgrade", nothing)
    assert (await stores.rebuild("shared://x", SystemClock())).text == "every deadline was in its place"
    assert (await stores.finish_upgrade("shared://x", SystemClock())).text == "nothing was left to do"


async def test_a_store_that_cannot_be_opened_is_a_finding(asked: list[str]) -> None:
    finding = await stores.rebuild("shared://away", SystemClock())
    assert (finding.level, finding.subject, finding.text) == ("fail", "rebuild", str(StoreUnavailable()))


def test_sqlite_needs_no_maintenance(tmp_path: Path) -> None:
    """Its index of deadlines is SQLite's own, and its file is neither opened nor made."""
    for ask in (stores.rebuild, stores.finish_upgrade):
        finding = asyncio.run(ask("sqlite:///t.db", SystemClock()))
        assert (finding.level, finding.text) == ("ok", "sqlite:// needs none; there is nothing to do")
    assert list(tmp_path.iterdir()) == []


def test_doctor_does_both_on_request(asked: list[str], capsys: Output) -> None:
    """Once the examination is done, and with a line before what may take a while."""
    flags = ["doctor", "--port", "0", "--store", "shared://x"]
    assert main(flags) == 0
    assert asked == []
    capsys.readouterr()
    assert main([*flags, "--rebuild", "--finish-upgrade"]) == 0
    said = capsys.readouterr().out
    lines = [line.split(maxsplit=2) for line in said.splitlines() if line[:1] in "✓!…" and line]
    assert [(mark, about) for mark, about, _ in lines[-4:]] == [
        ("…", "rebuild"),
        ("✓", "rebuild"),
        ("…", "upgrade"),
        ("✓", "upgrade"),
    ]
    assert "! persistence  it forgets" in said


def test_doctor_exits_with_1_if_it_could_not(asked: list[str], capsys: Output) -> None:
    assert main(["doctor", "--json", "--port", "0", "--store", "shared://away", "--rebuild"]) == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [finding["about"] for finding in checks if finding["mark"] == "fail"] == ["store", "rebuild"]


@pytest.mark.parametrize(("module", "extra"), [("redis", "redis"), ("psycopg_pool", "postgres")])
def test_a_missing_extra_names_its_pip_line(
    module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """For the library, for `serve` and for `doctor`."""
    (tmp_path / f"lacks_{extra}.py").write_text(f"import {module}.sub\nclass Store: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    entry = EntryPoint(extra, f"lacks_{extra}:Store", "turntake.stores")
    register(monkeypatch, entry)
    with pytest.raises(MissingExtra, match=rf"pip install 'turntake\[{extra}\]'"):
        open_store(f"{extra}://host", SystemClock())
    assert main(["serve", "--port", "0", "--store", f"{extra}://host"]) == 2
    assert f"pip install 'turntake[{extra}]'" in capsys.readouterr().err
    assert main(["doctor", "--port", "0", "--store", f"{extra}://host"]) == 1
    assert f"pip install 'turntake[{extra}]'" in capsys.readouterr().out


def test_another_module_that_is_missing_is_no_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wrote the adapter wants to see where."""
    (tmp_path / "lacks_other.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("other", "lacks_other:Store", "turntake.stores")
    register(monkeypatch, entry)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        plugins.load("stores", "other")


def test_a_store_whose_time_is_ahead_is_shown_and_set_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the command line: a warning that says what to do, and the command that it names."""
    monkeypatch.chdir(tmp_path)

    async def see_a_time_to_come() -> None:
        ahead = VirtualClock(SystemClock().wall() + DAY_MS)
        async with open_store("sqlite:///turntake.db", ahead) as store:
            await say(store, "m1")

    asyncio.run(see_a_time_to_come())
    main(["doctor", "--offline"])
    assert "run `turntake doctor --reset-clock`" in capsys.readouterr().out
    main(["doctor", "--offline", "--reset-clock"])
    assert "ahead and is set back, and every deadline with it" in capsys.readouterr().out
    main(["doctor", "--offline", "--reset-clock"])
    said = capsys.readouterr().out
    assert "the store's time was right" in said
    assert "run `turntake doctor --reset-clock`" not in said


async def test_a_store_that_notes_no_time_has_none_to_set_right(asked: list[str]) -> None:
    finding = await stores.reset_clock("memory://", SystemClock())
    assert finding == Finding("ok", "clock", "memory:// notes no time; there is nothing to do")


async def test_a_store_that_does_not_open_cannot_be_set_right(tmp_path: Path) -> None:
    finding = await stores.reset_clock(f"sqlite:///{tmp_path / 'no' / 'folder.db'}", SystemClock())
    assert (finding.level, finding.subject) == ("fail", "clock")
