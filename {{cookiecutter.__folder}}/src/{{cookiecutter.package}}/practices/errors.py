"""Mistakes that their maker can mend are said in one sentence; everything else keeps its traceback."""

import argparse
import re


class UserError(Exception):
    """What was given cannot work. The message names it, what was expected, and what to do."""


def explain(error: BaseException) -> str | None:
    """Return the sentence for a mistake of the user's, or None when `error` is a fault of the code."""
    text = str(error)
    if isinstance(error, UserError):
        # A loader's worker process sends its traceback along; only the last line is for people.
        return text.rsplit("UserError: ", 1)[-1].strip()
    if isinstance(error, argparse.ArgumentError):
        return _shorten(text)
    if type(error).__name__ == "MisconfigurationException":  # Lightning's, named so that torch need not be imported
        return " ".join(text.split())
    if type(error).__name__ == "OutOfMemoryError":  # torch's; in the order of what costs least
        return (
            "the GPU's memory is full; halve data.batch_size and double trainer.accumulate_grad_batches (the same "
            "effective batch), then try trainer.precision bf16-mixed, model.gradient_checkpointing true, or smaller "
            f"inputs; configs/profile.yaml shows what is used ({text.splitlines()[0] if text else 'CUDA'})."
        )
    if isinstance(error, PermissionError):
        return f"{error.filename} may not be read or written; change its permissions or choose another folder."
    if isinstance(error, OSError) and error.errno == 28:
        return "the disk is full; free some space, then continue the run with fit --resume latest."
    return None


# What jsonargparse says of a union: the branches that were not meant, and how it stores values.
_NOISE = re.compile(
    r"Does not validate against any of the Union subtypes|Subtypes: .*|Errors:|Expected a <class 'NoneType'>"
    r"|Given value type: .*|Given value: (NestedArg|\{|Namespace).*|Got value: Namespace.*"
    r"|Type collections\.abc\.Callable\S*( \S+\])? expects a function or a callable class:"
)


def _shorten(text: str) -> str:
    """Return jsonargparse's nested report as one sentence."""
    lines = [_NOISE.sub("", line.strip().removeprefix("- ")).strip(" :.") for line in text.splitlines()]
    sentence = ": ".join(line for line in lines if line).replace("::", ":")
    return f"{sentence}; the command's --help lists what is accepted."
