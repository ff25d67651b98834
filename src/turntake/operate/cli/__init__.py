"""The command line. Each command lives in its own module and is imported when it is called."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version

from cyclopts import App, CycloptsError, Group

from turntake.errors import ConfigurationError, StoreUnavailable, TurntakeError

USAGE, FAILURE, INTERRUPTED = 2, 1, 130

_HELP = """
Turns bursts of chat messages into turns, and looks after each until it is answered.
"""

_EPILOGUE = """
The first five minutes:

    turntake demo                        see what it does
    turntake serve                       start a server; its agent echoes
    turntake chat                        from a second terminal
    turntake init                        settings and an agent of your own

Every command explains itself: turntake serve --help
"""

START = Group("Start here", sort_key=1)
LOOK = Group("Look", sort_key=2)
SET_UP = Group("Set up", sort_key=3)

COMMANDS: tuple[tuple[str, Group, str], ...] = (
    ("serve", START, "Run the server: accept messages, collect them into turns, have them answered."),
    ("demo", START, "Watch a lively synthetic crowd, and what collecting its messages saves."),
    ("chat", START, "Type messages yourself, and see them answered as turns."),
    ("send", START, "Send messages to a running server, as a person would."),
    ("conversations", LOOK, "List conversations, or show one: why it waits, its last turns."),
    ("turns", LOOK, "Turns: list those of a conversation, or show one: messages, waits, answer."),
    ("letters", LOOK, "Dead letters: messages that nobody answered. List, show, retry, discard."),
    ("rules", LOOK, "Rules: what is set for whom, and what counts for a conversation. Get, set, explain, roll back."),
    ("stats", LOOK, "What collecting messages saved: model calls, money, and what it cost in time."),
    ("channels", LOOK, "List the channels: what each still needs, and the address for its webhooks."),
    ("doctor", LOOK, "Check this installation, and show what is set and where it came from."),
    ("bench", LOOK, "Measure speed and lateness here, beside two baselines."),
    ("keys", SET_UP, "API keys: make, list, revoke."),
    ("init", SET_UP, "Write a commented turntake.toml and an example agent."),
)


def build() -> App:
    """The whole command line, with no command imported yet."""
    app = App(
        name="turntake",
        help=_HELP,
        help_epilogue=_EPILOGUE,
        help_format="plaintext",
        version=lambda: f"turntake {version('turntake')}",
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        print_error=False,
        exit_on_error=False,
    )
    for order, (name, group, sentence) in enumerate(COMMANDS):
        app.command(f"{__name__}.{name}:app", name=name, group=group, help=sentence, sort_key=order)
    app["--help"].group = app["--version"].group = Group("Options", sort_key=4)
    return app


def main(tokens: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. A mistake gets one line that says what to do, never a traceback."""
    try:
        result = build()(sys.argv[1:] if tokens is None else list(tokens))
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        return _complain(f"{_first_line(error)} Try: {_help_command(error)}", USAGE)
    except ConfigurationError as error:
        return _complain(str(error), USAGE)
    except StoreUnavailable as error:
        return _complain(f"{error} Does the store's server run, and is --store right? Try: turntake doctor", FAILURE)
    except TurntakeError as error:
        return _complain(str(error), FAILURE)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does; the interpreter must not complain about it at exit.
        with suppress(OSError):
            sys.stdout = None
        return FAILURE


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"turntake: {message}\n")
    return code


def _first_line(error: CycloptsError) -> str:
    return " ".join(str(error).split())


def _help_command(error: CycloptsError) -> str:
    return " ".join(["turntake", *(error.command_chain or ()), "--help"])
