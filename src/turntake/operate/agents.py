"""The agent that a command line or a setting names: `echo`, a URL, or `module:attribute`."""

import difflib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from turntake import plugins
from turntake.deliver.echo import echo
from turntake.deliver.handler import HandlerSink
from turntake.deliver.options import Yields
from turntake.deliver.sink import Sink, SinkOpener
from turntake.errors import ConfigurationError

if TYPE_CHECKING:
    from turntake.service import TurnTake


@dataclass(frozen=True, slots=True)
class Agent:
    """Where turns go. `turns` is the object that was named, if one was: its rules and store count unless overridden."""

    sink: Sink
    turns: "TurnTake | None" = None


def agent_from(spec: str, options: Mapping[str, Any] | None = None, yields: Yields = "replies") -> Agent:
    """The agent behind `spec`. Whoever calls this closes the sink of a URL.

    A URL is opened by the plug-in for its scheme, which gets the URL and the options. `yields` says what a generator's
    pieces are. Raises ConfigurationError, which says what to correct.
    """
    if spec == "echo":
        return Agent(HandlerSink(echo))
    scheme, is_url, _ = spec.partition("://")
    if is_url:
        return Agent(_sink_opener(scheme.lower())(spec, options or {}))
    return _as_agent(load_object(spec), spec, yields)


def _sink_opener(scheme: str) -> SinkOpener:
    known = plugins.names("sinks")
    if scheme not in known:
        schemes = ", ".join(f"{name}://" for name in known)
        raise ConfigurationError(f"No agent can be reached by {scheme}://; this installation can call: {schemes}.")
    opener: SinkOpener = plugins.load("sinks", scheme)
    return opener


def load_object(spec: str) -> Any:
    """What `package.module:attribute` names; the current folder is looked in first."""
    module_name, colon, path = spec.partition(":")
    if path.partition("/")[0].isdecimal():
        raise ConfigurationError(f"{spec!r} does not name an agent; write http://{spec} if it is the address of one.")
    if not (module_name and colon and path):
        raise ConfigurationError(
            f"{spec!r} does not name an agent: write `echo`, a URL, or module:attribute, for example my_app:answer."
        )
    loaded: Any = _module(module_name)
    for name in path.split("."):
        loaded = _attribute(loaded, name, spec)
    return loaded


def _module(name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name or name.startswith("."):
        written = name.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigurationError(f"A module is named as in an import: write {written!r} instead of {name!r}.")
    here = str(Path.cwd())
    if here not in sys.path[:1]:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(_about_missing(name, error.name or name, Path(here))) from error
    except SystemExit:
        raise ConfigurationError(
            f'Importing {name!r} called sys.exit(): what a program starts belongs under `if __name__ == "__main__":`.'
        ) from None
    except Exception as error:
        said = error.msg if isinstance(error, SyntaxError) else error
        where = _where(error)
        raise ConfigurationError(f"Importing {name!r} raised {type(error).__name__}: {said} ({where}).") from error


def _where(error: Exception) -> str:
    """The file and line that the fault is in; for a syntax error that is not where it was raised."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _about_missing(name: str, missing: str, here: Path) -> str:
    if not f"{name}.".startswith(f"{missing}."):
        return f"{name!r} imports {missing!r}, which is not installed here: install it in this environment."
    present = [path.stem for path in here.glob("*.py")] + [path.parent.name for path in here.glob("*/__init__.py")]
    return (
        f"There is no module {missing!r} in {here} or among the installed packages"
        f"{_meant(missing, present)}; start turntake in the folder that holds it, or correct the name."
    )


def _attribute(owner: Any, name: str, spec: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        public = [known for known in vars(owner) if not known.startswith("_")] if hasattr(owner, "__dict__") else []
        raise ConfigurationError(
            f"{spec!r} cannot be found: there is no {name!r} in {_named(owner)}{_meant(name, public)}."
        ) from None


def _as_agent(loaded: Any, spec: str, yields: Yields) -> Agent:
    from turntake.service import TurnTake  # it imports this package, so not at the top

    if isinstance(loaded, Sink):
        return Agent(loaded)
    if isinstance(loaded, TurnTake):
        if loaded._sink is None:
            raise ConfigurationError(f"{spec!r} has no handler yet: decorate a function in it with @turns.handler.")
        return Agent(loaded._sink, loaded)
    if inspect.isclass(loaded):
        raise ConfigurationError(f"{spec!r} is a class: name a function, or an instance of it.")
    if not callable(loaded):
        raise ConfigurationError(
            f"{spec!r} is of type {type(loaded).__name__}: "
            "name a function that takes a Turn, a Sink, or a TurnTake object."
        )
    _check_signature(loaded, spec)
    return Agent(HandlerSink(loaded, yields))


def _check_signature(function: Callable[..., Any], spec: str) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions do not tell
        return
    try:
        signature.bind(object())
    except TypeError:
        raise ConfigurationError(
            f"{spec!r} takes {signature}, but is called with one argument, the turn: "
            f"write `async def {getattr(function, '__name__', 'answer')}(turn): ...`."
        ) from None


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _named(owner: Any) -> str:
    return repr(owner.__name__) if hasattr(owner, "__name__") else f"a {type(owner).__name__}"
