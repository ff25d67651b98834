"""DBOS Debouncer on PostgreSQL, in its own environment: `python -m bench.dbos_peer client|worker URL PLAN OUT`.

As its documentation has it: a `DebouncerClient` outside the application, and an application that runs the workflow
from a registered queue with the default settings. Its calls block, so they run in threads, as its own async form does.
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dbos import DBOS, DBOSClient, DebouncerClient  # type: ignore[import-not-found]

from bench.bursts import SILENCE_MS, Plan
from bench.side import Notes, now_ms, run_client, run_worker

QUEUE = "turns"
WORKFLOW = "answer"
APPLICATION = "bench"
VERSION = "1"
THREADS = 20


async def client(url: str, plan: Plan, out: Path) -> None:
    dbos = DBOSClient(system_database_url=url, application_name=APPLICATION, system_database_pool_size=THREADS)
    options = {"workflow_name": WORKFLOW, "queue_name": QUEUE, "app_version": VERSION}
    debouncer = DebouncerClient(dbos, options)
    threads = ThreadPoolExecutor(THREADS)

    def debounce(conversation: str, number: int) -> tuple[float, float]:
        sent_at = now_ms()
        debouncer.debounce(conversation, SILENCE_MS / 1000, conversation, number)
        return sent_at, now_ms()

    async def send(conversation: str, number: int) -> tuple[float, float]:
        return await asyncio.get_running_loop().run_in_executor(threads, debounce, conversation, number)

    await run_client(plan, out, send)
    dbos.destroy()


async def worker(url: str, out: Path) -> None:
    notes = Notes(out)
    DBOS(
        config={
            "name": APPLICATION,
            "system_database_url": url,
            "application_version": VERSION,
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )

    @DBOS.workflow(name=WORKFLOW)  # type: ignore[untyped-decorator]
    def answer(conversation: str, number: int) -> None:
        notes.handed(conversation, [number])

    DBOS.launch()
    await DBOS.register_queue_async(QUEUE)
    await run_worker(notes)
    DBOS.destroy()


def main(side: str, url: str, plan: str, out: str) -> None:
    asyncio.run(client(url, Plan.read(Path(plan)), Path(out)) if side == "client" else worker(url, Path(out)))


if __name__ == "__main__":
    main(*sys.argv[1:])
