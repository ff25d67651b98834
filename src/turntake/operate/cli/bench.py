"""`turntake bench`: measure this machine, or a server that runs."""

import asyncio
from typing import Annotated
from urllib.parse import urlsplit

from cyclopts import App, Parameter

from turntake.errors import ConfigurationError
from turntake.operate.bench.measure import Figure, against_running, everything
from turntake.operate.cli.connection import Key
from turntake.operate.cli.flags import Json
from turntake.operate.cli.output import paint, say, say_json

app = App(
    name="bench",
    help_epilogue="""
Examples:

    turntake bench                              servers of its own
    turntake bench --seconds 2 --waiting ""   a quick look
    turntake bench --url http://127.0.0.1:8080   a server that runs

Load goes to loopback unless you name another server. It writes real messages:
do not point it at a server whose agent costs money.
""",
)


@app.default
def bench(
    *,
    url: Annotated[str | None, Parameter(help="Measure this server instead of starting some.")] = None,
    key: Key = None,
    seconds: Annotated[float, Parameter(help="How long each measurement takes.")] = 5.0,
    rate: Annotated[float, Parameter(help="Messages a second for the lateness measurement.")] = 1_000.0,
    connections: Annotated[int, Parameter(help="How many requests are under way at once.")] = 32,
    waiting: Annotated[str, Parameter(help="Numbers of waiting conversations to compare.")] = "1000,100000",
    json: Json = False,
) -> None:
    """Measure messages a second, acknowledgement, lateness and CPU, beside a server and an SQLite that do nothing else.

    Every figure is measured in this run, with the load coming from another process.
    """
    from turntake.http.server import new_loop

    figures: list[Figure] = []

    def report(figure: Figure) -> None:
        figures.append(figure)
        if not json:
            say(f"{figure.name:<46} {_shown(figure.value):>10} {figure.unit:<11} {paint('dim', figure.note)}".rstrip())

    with asyncio.Runner(loop_factory=new_loop) as runner:
        if url is None:
            runner.run(everything(seconds * 1_000, rate, connections, _counts(waiting), report))
        else:
            server = urlsplit(url)
            if server.scheme != "http" or server.hostname is None:
                raise ConfigurationError("--url is written http://HOST:PORT; https is not measured here.")
            runner.run(against_running(server.hostname, server.port or 80, key or "", seconds * 1_000, rate, report))
    if json:
        say_json([figure._asdict() for figure in figures])


def _counts(written: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in written.split(",") if part.strip())
    except ValueError:
        raise ConfigurationError("--waiting is a list of numbers, for example 1000,100000.") from None


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
