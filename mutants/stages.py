"""Which tests may notice a bug in a file: the nearest first, since most bugs die there, and the widest last."""

SRC = "src/turntake"
FOLDERS = (f"{SRC}/rules", f"{SRC}/buffer", f"{SRC}/claim")

Stage = tuple[str, ...]

# Without a server, and quick.
CORE: Stage = ("tests/rules", "tests/test_states.py", "tests/buffer/test_memory.py", "tests/buffer/engine")
WORK: Stage = ("tests/claim", "tests/tour", "tests/test_service.py", "tests/deliver")
ENGINE: Stage = ("tests/buffer/test_*.py", "tests/buffer/engine", "tests/buffer/sqlite")
SERVERS: Stage = ("tests/buffer/redis", "tests/buffer/postgres")
REST: Stage = ("tests/http", "tests/accept", "tests/operate", "tests/observe")

# The longest beginning counts.
STAGES: dict[str, tuple[Stage, ...]] = {
    f"{SRC}/rules": (CORE, WORK, ENGINE, SERVERS, REST),
    f"{SRC}/claim": (("tests/claim",), WORK, ENGINE, SERVERS, REST),
    f"{SRC}/buffer": (CORE, ENGINE, WORK, SERVERS, REST),
    f"{SRC}/buffer/sqlite": (("tests/buffer/sqlite",), ENGINE, ("tests/operate",)),
    f"{SRC}/buffer/redis": (("tests/buffer/redis",), ("tests/buffer/test_*.py",), ("tests/operate",)),
    f"{SRC}/buffer/postgres": (("tests/buffer/postgres",), ("tests/buffer/test_*.py",), ("tests/operate",)),
}


def stages_for(path: str) -> tuple[Stage, ...]:
    """Those of the innermost folder that is named."""
    return STAGES[max((folder for folder in STAGES if path.startswith(f"{folder}/")), key=len)]
