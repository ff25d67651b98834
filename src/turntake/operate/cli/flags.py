"""Every setting that is not a secret as a flag, in the words of its one sentence."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from turntake.operate.options.catalogue import catalogue
from turntake.operate.options.groups import Options
from turntake.operate.options.settings import Setting, shown
from turntake.operate.options.sources import CONFIG_FILE, load

T = TypeVar("T")
Load = Callable[[], Options]


def option(help: str, metavar: str | None = None) -> Parameter:
    """A flag with a value; the sentence ends with its default in brackets, as those of settings do."""
    return Parameter(help=help, metavar=metavar, show_default=False)


def options(help: str, metavar: str) -> Parameter:
    """A flag that may be given several times, each time with one value."""
    return Parameter(help=help, metavar=metavar, show_default=False, negative="", consume_multiple=False)


def switch(help: str) -> Parameter:
    """A flag without a value, and without its opposite."""
    return Parameter(help=help, negative="", show_default=False)


Config = Annotated[Path | None, option("The TOML file to read instead of ./turntake.toml.", "FILE")]
Json = Annotated[bool, switch("Print JSON instead of text.")]


def tell_of_file(options: Options) -> None:
    """Names the file that was found in the current folder: it says which server is called, and with what."""
    if options.sources.config:
        sys.stderr.write(f"turntake: settings from {options.sources.config}\n")
    for warning in options.sources.warnings:
        if warning.startswith(CONFIG_FILE):
            sys.stderr.write(f"turntake: {warning}\n")


def takes_settings(command: Callable[..., T]) -> Callable[..., T]:
    """Gives `command(load, **own)` a flag for every setting; `load()` reads them all, and may fail.

    The common ones are shown in its help, the others work all the same. This imports the installed channels, whose
    options are flags too: it is for modules of commands, which are imported when the command is called.
    """
    known = catalogue()
    flagged = [setting for setting in known.settings if setting.flag]

    def called(*names: Any, config: Path | None = None, **arguments: Any) -> T:
        flags = {setting.key: arguments.pop(_argument(setting), None) for setting in flagged}
        return command(lambda: load(flags, config=config, known=known), *names, **arguments)

    own = [p for name, p in inspect.signature(command, eval_str=True).parameters.items() if name != "load"]
    added = [_as_parameter(setting) for setting in flagged] + [_keyword("config", Config)]
    # Python wants what is given by its place before what is given by name.
    parameters = sorted([*added, *own], key=lambda parameter: parameter.kind)
    called.__doc__ = command.__doc__
    called.__name__ = command.__name__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


_METAVARS = {"store": "URL", "agent": "AGENT", "public_url": "URL", "host": "HOST", "port": "PORT", "role": "ROLE"}


def _argument(setting: Setting) -> str:
    return setting.key.replace(".", "_").replace("-", "_")


def _as_parameter(setting: Setting) -> inspect.Parameter:
    default = shown(setting, setting.default)
    note = Parameter(
        name=setting.flag,
        metavar=_METAVARS.get(setting.name, "NUMBER" if isinstance(setting.default, int) else "TEXT"),
        help=setting.sentence + (f" [{default}]" if default else ""),
        show=not setting.section,
    )
    return _keyword(_argument(setting), Annotated[str | None, note])


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
