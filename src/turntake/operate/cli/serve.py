"""`turntake serve`: the options become a server that runs until it is told to stop."""

import asyncio
import logging
import signal
from collections.abc import Callable
from functools import partial
from socket import socket
from types import FrameType
from typing import TYPE_CHECKING, Annotated

from cyclopts import App

from turntake.operate import logs
from turntake.operate.accounts import channels_of, homes_of, listeners_of
from turntake.operate.assemble import Parts, assemble
from turntake.operate.cli.banner import print_banner
from turntake.operate.cli.flags import Load, switch, takes_settings
from turntake.operate.made_key import MadeKeyFile, make_key
from turntake.operate.options.groups import Options
from turntake.operate.weak_secrets import refuse_weak_secrets

if TYPE_CHECKING:
    from turntake.accept.listening import Listeners

log = logging.getLogger("turntake")

SIGNALS = (signal.SIGINT, signal.SIGTERM)

app = App(
    name="serve",
    help_epilogue="""
Examples:

    turntake serve                              keeps turntake.db here, echoes
    turntake serve --agent my_app:answer        your own async def answer(turn)
    turntake serve --agent my_app:answer --reload   while you write it
    turntake serve --agent https://host/agent   your own service
    turntake serve --rules-silence-ms 2500      patience with slow writers
    turntake keys new operator --all-scopes     needed before the next one
    turntake serve --host 0.0.0.0               others may call, with a key

Every setting is a flag, a TURNTAKE_… variable and a line in turntake.toml:
`turntake doctor --all` lists them, `turntake init` writes the file.
""",
)


@app.default
@takes_settings
def serve(
    load: Load,
    *,
    reload: Annotated[bool, switch("Start again whenever a Python file or the settings here change.")] = False,
) -> int:
    """Run the server: accept messages, collect them into turns, have them answered.

    It stops politely on Ctrl-C or SIGTERM: answers that are under way may finish, the rest is handed back. A second
    Ctrl-C or SIGTERM hands everything back at once.
    """
    if reload:
        from turntake.operate.cli.reload import keep_serving

        return keep_serving()
    from turntake.http.access import refuse_open_bind
    from turntake.http.connections import raise_file_limit
    from turntake.http.hosts import is_loopback
    from turntake.http.server import listen, new_loop, tune

    options = load()
    logs.configure(options.log)
    refuse_weak_secrets(options)
    parts = assemble(options)
    if not is_loopback(options.host):
        refuse_open_bind(options.host, bool(options.api_keys) or asyncio.run(parts.turns.has_api_keys()))
    bound = listen(options.host, options.port)
    files = raise_file_limit()
    made = None if options.api_keys else make_key(options.store)
    tune()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(options, parts, bound, made, files))
    return 0


async def _serve(options: Options, parts: Parts, bound: socket, made: MadeKeyFile | None, files: int | None) -> None:
    from turntake.accept.listening import listening
    from turntake.http.connections import Limits
    from turntake.http.server import Server, url_of

    app = parts.turns.asgi(
        api_keys=options.api_keys,
        made_key=made.key if made else "",
        max_body_bytes=options.http.body_bytes,
        receive_ms=options.http.receive_ms,
        channels=channels_of(parts.accounts),
        homes=homes_of(parts.accounts),
        public_url=options.public_url,
        max_webhook_bytes=options.webhooks.body_bytes,
        groups=options.webhooks.groups,
        oldest_ms=options.webhooks.oldest_ms,
        delivery=options.webhooks.delivery,
    )
    server = Server(
        app,
        options.worker.shutdown_ms,
        lambda: print_banner(options, parts, url_of(bound), made),
        app.state.events.close,
        on_drain=lambda: _drain(parts),
        drain_ms=options.http.drain_ms,
        is_guest=True,
        limits=Limits(options.http, parts.turns.clock, files),
    )
    try:
        # Entered here and not by the app, so that a store that does not open is one line and not a traceback.
        async with parts.turns, listening(_listeners(parts), app.state.intake, parts.turns.clock):
            _on_signals(server.handle_exit)
            await server.serve([bound])
            _on_signals(partial(_hurry, parts, asyncio.get_running_loop()))
            if parts.turns.is_answering:
                log.info(
                    "Waiting for answers under way; another Ctrl-C or SIGTERM hands them back at once",
                    extra={"action": "stop", "at_most_ms": options.worker.shutdown_ms},
                )
    finally:
        bound.close()
        await parts.aclose()
    # Not left to `_hurry`: the interpreter takes its own handlers away before it ends, and a signal would count again.
    _on_signals(signal.SIG_IGN)
    log.info("Stopped", extra={"action": "stop"})


def _on_signals(handler: "signal.Handlers | Callable[[int, FrameType | None], None]") -> None:
    """From here on, without a moment between it and the handler before, in which a signal would end the process."""
    for number in SIGNALS:
        signal.signal(number, handler)


def _hurry(parts: Parts, loop: asyncio.AbstractEventLoop, number: int, frame: FrameType | None) -> None:
    """While the last answers finish, another signal is no reason to break off: it hands back what is left at once."""
    loop.call_soon_threadsafe(parts.turns.hurry)


def _listeners(parts: Parts) -> "Listeners":
    return {} if parts.turns.role == "work" else listeners_of(parts.accounts)


def _drain(parts: Parts) -> None:
    log.info("Stopping", extra={"action": "stop", "role": parts.turns.role})
    parts.turns.drain()
