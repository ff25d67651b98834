"""The peers, installed into environments of their own, at exactly these versions, the first time they are needed."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
PEERS = HERE / ".peers"
DBOS = ("dbos==3.3.0", "psycopg[binary]==3.3.8", "sqlalchemy==2.1.8")
INSTALL_S = 300


class CannotRun(Exception):
    """A contender that this machine cannot run, and why."""


def bullmq() -> Path:
    """The folder of BullMQ's two sides, with its modules."""
    folder = HERE / "bullmq"
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise CannotRun("node and npm are not installed")
    with _once(folder / "node_modules", (folder / "package.json").read_text()) as is_missing:
        if is_missing:
            _install([npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent"], folder)
    return folder


def dbos() -> Path:
    """The Python that has DBOS."""
    folder = PEERS / "dbos"
    python = folder / "bin" / "python"
    with _once(folder, " ".join(DBOS)) as is_missing:
        if is_missing:
            PEERS.mkdir(exist_ok=True)
            _install([sys.executable, "-m", "venv", "--clear", str(folder)], PEERS)
            _install([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *DBOS], PEERS)
    return python


@contextmanager
def _once(folder: Path, versions: str) -> Iterator[bool]:
    """Whether `folder` still lacks these versions; after the block it has them, unless the block failed."""
    stamp = folder / ".installed"
    is_missing = not stamp.exists() or stamp.read_text() != versions
    yield is_missing
    stamp.write_text(versions)


def _install(command: list[str], folder: Path) -> None:
    print(f"  installing: {' '.join(Path(word).name for word in command)}", flush=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode != 0:
        raise CannotRun(f"it could not be installed: {(done.stderr or done.stdout).strip()[-300:]}")
