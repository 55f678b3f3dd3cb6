"""The lines behind an error, to tell a user's error from one of ours."""

import re
import traceback
from collections.abc import Iterator
from pathlib import Path

_PLACE = re.compile(r'File "([^"\n]+)", line (\d+)')
USER_FILE = "dualanchor.user_file"  # in the command's context: the file of `file.py:name`


def user_line(error: BaseException, file: Path) -> str | None:
    """The last line that ran in the user's file, or in a file beside it, as "file, line 3"; None if none did."""
    lines = [f"{name}, line {number}" for name, number in _lines(error) if Path(name).parent == file.parent]
    return lines[-1] if lines else None


def innermost_line(error: BaseException) -> str | None:
    """The line that raised the error, or its first cause."""
    lines = [f"{name}, line {number}" for name, number in _lines(error)]
    return lines[-1] if lines else None


def in_words(error: BaseException) -> str:
    """Type and text of an error, even if its `str` fails."""
    lines = traceback.format_exception_only(error)
    return lines[-1 if isinstance(error, SyntaxError) else 0].strip()[:500]


def _lines(error: BaseException) -> Iterator[tuple[str, int | None]]:
    """Files and lines of the traceback, from the outermost to the innermost, then those of the causes."""
    cause: BaseException | None = error
    while cause is not None:
        yield from ((frame.filename, frame.lineno) for frame in traceback.extract_tb(cause.__traceback__))
        if isinstance(cause, SyntaxError) and cause.filename:
            yield cause.filename, cause.lineno
        if type(cause).__name__ == "_RemoteTraceback":  # the traceback of a worker, as text
            yield from ((name, int(number)) for name, number in _PLACE.findall(str(cause)))
        cause = cause.__cause__
