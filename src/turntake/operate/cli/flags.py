"""The table of settings as flags: every setting that is no secret, in the words of its one sentence."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from turntake.operate.options.settings import SETTINGS, Setting, Settings, shown
from turntake.operate.options.sources import load

T = TypeVar("T")
Load = Callable[[], Settings]


def option(help: str, metavar: str | None = None) -> Parameter:
    """A flag with a value; the sentence ends with its default in brackets, as those of settings do."""
    return Parameter(help=help, metavar=metavar, show_default=False)


def switch(help: str) -> Parameter:
    """A flag without a value, and without its opposite."""
    return Parameter(help=help, negative="", show_default=False)


Config = Annotated[Path | None, option("The TOML file to read instead of ./turntake.toml.", "FILE")]
Json = Annotated[bool, switch("Print JSON instead of text.")]


def takes_settings(command: Callable[..., T]) -> Callable[..., T]:
    """Gives `command(load, **own)` a flag for every setting; `load()` reads them all, and may fail.

    The common ones are shown in its help, the others work all the same.
    """

    def called(config: Path | None = None, **given: Any) -> T:
        flags = {setting.key: given.pop(_argument(setting), None) for setting in _FLAGGED}
        return command(lambda: load(flags, config=config), **given)

    own = [p for name, p in inspect.signature(command, eval_str=True).parameters.items() if name != "load"]
    parameters = [_as_parameter(setting) for setting in _FLAGGED] + [_keyword("config", Config)] + own
    called.__doc__ = command.__doc__
    called.__name__ = command.__name__
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


_METAVARS = {"store": "URL", "agent": "AGENT", "public_url": "URL", "host": "HOST", "port": "PORT", "role": "ROLE"}
_FLAGGED = tuple(setting for setting in SETTINGS if setting.flag)


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
