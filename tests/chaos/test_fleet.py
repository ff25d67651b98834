"""Real processes: they come back, and one that falls over by itself is told."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import httpx2
import psutil  # type: ignore[import-untyped]
import pytest

from chaos.fleet import Fleet, Process
from harness.databases import until
from turntake.clock import SystemClock


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    process = Process("all1", "all", {"TURNTAKE_STORE": f"sqlite:///{tmp_path / 'chaos.db'}"}, tmp_path)
    fleet = Fleet([process])
    await fleet.open()
    yield process
    await fleet.close()


def pid() -> int:
    """Of the only child that serves."""
    (child,) = (c for c in psutil.Process().children() if "serve" in c.cmdline())
    return int(child.pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_process_that_was_ended_is_started_again(process: Process, how: signal.Signals) -> None:
    before = pid()
    await process.end(how)
    await process.ready()
    assert pid() != before
    assert (process.troubles, process.failed_starts) == ([], 0)


async def test_a_process_that_ends_by_itself_is_reported(process: Process) -> None:
    os.kill(pid(), signal.SIGKILL)
    await asyncio.to_thread(until, lambda: process.troubles)
    await process.ready()
    assert process.troubles == ["all1 ended by itself with -9"]


async def test_a_paused_process_does_nothing_until_it_goes_on(process: Process) -> None:
    pausing = asyncio.create_task(process.pause(0.5))
    await asyncio.to_thread(until, lambda: psutil.Process(pid()).status() == psutil.STATUS_STOPPED)
    await pausing
    assert psutil.Process(pid()).status() != psutil.STATUS_STOPPED


async def test_what_was_logged_is_counted(process: Process) -> None:
    assert Fleet([process]).count('"Listening"') == 1


async def test_an_earlier_release_is_upgraded(tmp_path: Path) -> None:
    """Here the earlier release is a Python that says so first."""
    python = tmp_path / "earlier"
    python.write_text(f'#!/bin/sh\necho an earlier release\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    store = {"TURNTAKE_STORE": f"sqlite:///{tmp_path / 'chaos.db'}"}
    fleet = Fleet([Process("all1", "all", store, tmp_path, str(python))])
    await fleet.open()
    (process,) = fleet.earlier
    await process.end(signal.SIGKILL)
    await process.ready()
    assert fleet.count("an earlier release") == 2, "it comes back as it was"
    await process.upgrade()
    await fleet.close()
    assert (fleet.count("an earlier release"), fleet.earlier, fleet.troubles) == (2, [], [])


async def test_a_process_that_starts_while_its_clock_is_wrong_takes_it_for_right(process: Process) -> None:
    process.set_clock(7_200)
    await process.restart(signal.SIGTERM)
    async with httpx2.AsyncClient(base_url=process.url) as client:
        receipt = (await client.post("/v1/messages", json={"conversation": "a", "id": "1", "text": "hello"})).json()
    due_at = datetime.fromisoformat(receipt["dueAt"]).timestamp() * 1000
    assert 3_600_000 < due_at - SystemClock().now() < 3 * 3_600_000


async def test_a_process_is_found_by_the_port_it_speaks_from(process: Process) -> None:
    """Its own end of a connection counts, and not the other's."""
    port = int(process.url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    assert process.speaks_from(port)
    assert not process.speaks_from(writer.get_extra_info("sockname")[1])
    writer.close()
