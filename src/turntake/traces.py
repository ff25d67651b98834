"""Where an exception came from, for logs and dead letters: the frames of whoever raised it, with its words or without.

The words of an exception may quote a person, so a log shows only its frames and its kind, unless somebody asked for
more. A dead letter has the person's messages anyway, and keeps the words too.
"""

import traceback
from pathlib import Path
from types import TracebackType

OURS = str(Path(__file__).parent) + "/"
# `raise … from …` three times over: more is rarely read.
LONGEST_CHAIN = 3

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def exc_info(error: BaseException, *, has_words: bool) -> ExcInfo:
    """For `log.warning(…, exc_info=…)`: the error from the first frame that is not ours."""
    shown = error if has_words else without_words(error)
    return type(shown), shown, outside(error.__traceback__)


def trace_of(error: BaseException) -> str:
    """The traceback with words, from the first frame that is not ours."""
    return "".join(traceback.format_exception(type(error), error, outside(error.__traceback__))).rstrip()


def without_words(error: BaseException, chain: int = LONGEST_CHAIN) -> BaseException:
    """An exception that prints as `error` does, with its frames and its causes, but without any of their words."""
    kind = type(error)
    nameless = type(kind.__qualname__, (Exception,), {"__module__": kind.__module__})
    shown: BaseException = nameless()
    shown.__traceback__ = error.__traceback__
    shown.__suppress_context__ = error.__suppress_context__
    if chain > 1 and error.__cause__ is not None:
        shown.__cause__ = without_words(error.__cause__, chain - 1)
    if chain > 1 and error.__context__ is not None and not error.__suppress_context__:
        shown.__context__ = without_words(error.__context__, chain - 1)
    return shown


def outside(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame that is not in this package; all of it if there is none."""
    frame = trace
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(OURS):
        frame = frame.tb_next
    return frame or trace
