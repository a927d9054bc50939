"""What went wrong, as one sentence and an exit code: 1 it failed, 2 it was not understood."""

from __future__ import annotations

import errno
import os
import sys
import traceback

DEBUG_VARIABLE = "FLUSS_DEBUG"
FAILED = 1
WRONG_USAGE = 2
_HELP_WANTED = "NoArgsIsHelpError"
_LAUNCHER = "fluss_client.testing"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class CommandError(Exception):
    """A command cannot continue; its text is the sentence that a person reads."""

    exit_code = FAILED


class UsageError(CommandError):
    """The arguments contradict each other, or do not say enough."""

    exit_code = WRONG_USAGE


def report(error: BaseException) -> int:
    """Print what went wrong on standard error, and return the exit code."""
    if os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"):
        traceback.print_exception(error, file=sys.stderr)
    if type(error).__name__ == _HELP_WANTED:
        # Some of typer's help is printed as it is made, and the text is empty then.
        help_text = str(error).rstrip()
        print(help_text, end="\n" if help_text else "")
        return WRONG_USAGE
    if type(error).__module__.startswith(_LAUNCHER):
        for line in getattr(error, "log_tail", ()):
            print(f"  {line}", file=sys.stderr)
    text = one_line(sentence(error))
    if text:
        print(f"error: {text}", file=sys.stderr)
    return exit_code(error)


def sentence(error: BaseException) -> str:
    """Return what happened, where, and what to do next."""
    if hasattr(error, "format_message"):
        # Which package the class of a usage error lives in depends on typer's version; that it
        # has a message and an exit code does not.
        said = one_line(str(error.format_message())).rstrip(".")
        return f"{said} (--help lists what there is)" if said else ""
    if isinstance(error, CommandError):
        return str(error)
    if _is_ours(error):
        return str(error)
    if isinstance(error, OSError):
        return _of_system(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory; ask for less with --limit or --columns"
    return (
        f"{type(error).__name__}: {one_line(str(error)) or 'no message'} "
        f"({DEBUG_VARIABLE}=1 shows where)"
    )


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error."""
    code = getattr(error, "exit_code", FAILED)
    return code if isinstance(code, int) and code else FAILED


def one_line(text: str) -> str:
    """Return the text without line breaks."""
    return " ".join(text.split())


def _is_ours(error: BaseException) -> bool:
    # Importing the client just to look would cost a second; who raised one has imported it.
    errors = sys.modules.get("fluss_client.errors")
    return errors is not None and isinstance(error, errors.FlussError)


def _of_system(error: OSError) -> str:
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    text = one_line(error.strerror or str(error))
    if error.errno in _NO_ROOM:
        return f"{where}there is no room left to write ({text}); free some, or write elsewhere"
    if isinstance(error, PermissionError):
        return f"{where}no permission ({text}); use another path, or ask its owner"
    if isinstance(error, FileNotFoundError):
        return f"{where}there is no such file or folder"
    return f"{where}{text}"
