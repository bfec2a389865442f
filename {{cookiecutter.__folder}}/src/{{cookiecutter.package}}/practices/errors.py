"""Mistakes that their maker can mend are said in one sentence; everything else keeps its traceback."""

import argparse
import difflib
import errno
from collections.abc import Iterable, Iterator


class UserError(Exception):
    """What was given cannot work. The message names it, what was expected, and what to do."""


def one_of(argument: str, name: str, known: Iterable[str]) -> str:
    """Return `name`, which must be one of `known`.

    Raises:
        UserError: It is none of them; all are listed, the most alike first.
    """
    names = list(known)
    if name not in names:
        raise UserError(f"{argument} is {name!r}, but must be one of {', '.join(nearest(name, names))}.")
    return name


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Return `names`, the most like `name` first."""
    likeness = difflib.SequenceMatcher(b=name.lower())

    def distance(one: str) -> float:
        likeness.set_seq1(one.lower())
        return -likeness.ratio()

    return sorted(names, key=distance)


def explain(error: BaseException) -> str | None:
    """Return the sentence for a mistake of the user's, or None when `error` is a fault of the code."""
    text, chain = str(error), list(_chain(error))
    for one in chain:  # jsonargparse wraps what a constructor raises
        if isinstance(one, UserError):
            # A loader's worker process sends its traceback along; only the last line is for people.
            return str(one).rsplit("UserError: ", 1)[-1].strip()
    if isinstance(error, argparse.ArgumentError):
        from ..parsing import explain_argument

        return explain_argument([str(one) for one in chain])
    # Lightning's, of its Trainer's arguments; by name, so that torch need not be imported.
    if type(error).__name__ == "MisconfigurationException" or text.startswith("You selected an invalid"):
        return f"{' '.join(text.split()).rstrip('.!')}; mend trainer in the configuration."
    if type(error).__name__ == "OutOfMemoryError":  # torch's; in the order of what costs least
        return (
            "the GPU's memory is full; halve data.batch_size and double trainer.accumulate_grad_batches (the same "
            "effective batch), then try trainer.precision bf16-mixed, model.gradient_checkpointing true, or smaller "
            f"inputs; configs/profile.yaml shows what is used ({text.splitlines()[0] if text else 'CUDA'})."
        )
    if isinstance(error, OSError):
        return _explain_file(error)
    return None


# What the system says of a file that was named, and what to do.
_FILE_ERRORS = {
    errno.ENOENT: "does not exist; mend the path, or make its folder",
    errno.EISDIR: "is a folder; name a file",
    errno.ENOTDIR: "is not below a folder; mend the path",
    errno.EACCES: "may not be read or written; change its permissions or choose another folder",
    errno.EPERM: "may not be read or written; change its permissions or choose another folder",
    errno.EROFS: "cannot be written, as the file system is read-only; choose another folder",
}


def _explain_file(error: OSError) -> str | None:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; free some space, then continue the run with fit --resume latest."
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; choose another, or end the program that has it."
    found = _FILE_ERRORS.get(error.errno or 0) if error.filename else None
    return found and f"{error.filename} {found}."


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield `error`, what it was raised from, and what was handled meanwhile."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
