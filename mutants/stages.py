"""Which tests may notice a bug in a file: the nearest first, since most bugs die there, and the widest last."""

SRC = "src/turntake"
FOLDERS = (f"{SRC}/rules", f"{SRC}/buffer", f"{SRC}/claim")

Stage = tuple[str, ...]

# Without a server, and quick.
CORE: Stage = (
    "tests/rules",
    "tests/test_arrival.py",
    "tests/test_states.py",
    "tests/buffer/test_memory.py",
    "tests/buffer/engine",
)
ENGINE: Stage = ("tests/buffer/engine", "tests/buffer/sqlite", "tests/buffer/test_memory.py")
WORK: Stage = ("tests/claim", "tests/tour", "tests/test_service.py", "tests/deliver")
# Every store, by the contract and the machine that all of them pass: what a rule does wrong shows on each.
STORES: Stage = ("tests/buffer/test_*.py", "tests/buffer/sqlite")
SERVERS: Stage = ("tests/buffer/redis", "tests/buffer/postgres")

# The longest beginning counts.
CHAINS: dict[str, tuple[Stage, ...]] = {
    f"{SRC}/rules": (CORE, WORK, STORES),
    f"{SRC}/claim": (("tests/claim",), WORK, ("tests/http", "tests/operate/cli")),
    f"{SRC}/buffer": (ENGINE, STORES, WORK, SERVERS),
    f"{SRC}/buffer/sqlite": (("tests/buffer/sqlite",), STORES),
    f"{SRC}/buffer/redis": (("tests/buffer/redis",), STORES),
    f"{SRC}/buffer/postgres": (("tests/buffer/postgres",), STORES),
}


def stages_for(path: str) -> tuple[Stage, ...]:
    """Those of the innermost folder that is named."""
    return CHAINS[max((folder for folder in CHAINS if path.startswith(f"{folder}/")), key=len)]
