"""What a person got wrong, in one sentence: an option, a configuration file, a path, what the machine lacks."""

import argparse
import errno
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml

from .practices.errors import UserError, nearest


def explain(error: BaseException) -> str | None:
    """Return the sentence for a mistake of the user's, or None when `error` is a fault of the code."""
    text, chain = str(error), list(_chain(error))
    for one in chain:  # jsonargparse wraps what a constructor raises
        if isinstance(one, UserError):
            # A loader's worker process sends its traceback along; only the last line is for people.
            return str(one).rsplit("UserError: ", 1)[-1].strip()
    if isinstance(error, argparse.ArgumentError):
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
    if type(error).__name__ == "DistNetworkError" and "EADDRINUSE" in text:  # torch's, which is no OSError
        return PORT
    if isinstance(error, OSError):
        return _explain_file(error)
    return None


PORT = "the port is in use; choose another, or end the program that has it."
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
        return PORT
    found = _FILE_ERRORS.get(error.errno or 0) if error.filename else None
    return found and f"{error.filename} {found}."


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield `error`, what it was raised from, and what was handled meanwhile."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class Parser(argparse.ArgumentParser):
    """A parser of a command's own options, whose errors are one sentence, too."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise UserError(f"{message}; {self.prog} --help lists what is accepted.")


def require_yaml(path: Path) -> None:
    """Look at a configuration file.

    Raises:
        UserError: It is missing, no text, no YAML, or holds no names and values; the sentence says where.
    """
    if not path.is_file():
        files = ", ".join(nearest(str(path), [str(one) for one in path.parent.glob("*.yaml")]))
        raise UserError(f"{path} is no file{f'; there are {files}' if files else ''}.")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} must be UTF-8, but byte {error.start} is not; save it as UTF-8.") from error
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", error)
        where = f" in line {mark.line + 1}" if mark else ""
        raise UserError(f"{path} is no YAML: {problem}{where}; mend its brackets, quotes or indentation.") from error
    if not isinstance(content, dict | None):
        raise UserError(f"{path} must hold names and values, name: value, but holds a {type(content).__name__}.")


def explain_argument(told: Sequence[str]) -> str:
    """Return the sentence for what jsonargparse says, and what that was raised from."""
    # A file that does not fit is read a second time, which hides why it did not.
    first = next((text for text in told if "Config file loop" not in text), told[0])
    return next(filter(None, map(_wrong_name, told)), None) or _shorten(first)


# What jsonargparse says of a union: the branches that were not meant, and how it stores values.
_NOISE = re.compile(
    r"Does not validate against any of the Union subtypes|Subtypes: .*|Errors:|Expected a <class 'NoneType'>"
    r"|Given value type: .*|Given value: (NestedArg|\{|Namespace).*|Got value: Namespace.*"
    r"|Type collections\.abc\.Callable\S*( \S+\])? expects a function or a callable class:"
)

# Its words, and shorter ones.
_WORDS = (
    (r'Parser key "([\w.]+)": ', r"\1: "),
    (r"Problem with given class_path '[\w.]+': ", ""),
    (r"[Ee]xpected a <class '(\w+)'>", r"must be \1"),
    (r"[Ee]xpected a typing\.Literal\[([^\]]+)\]", r"must be one of \1"),
    (r"[:.] (?:Given|Got) value: (.+)", r", but is \1"),
)
_MISSING = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
_NO_FILE = re.compile(r"Expected a path but (\S+) either not accessible")


def _wrong_name(text: str) -> str | None:
    """Return the sentence for a class or file that does not exist, with those that do."""
    if found := _MISSING.search(text):
        return _not_in(found[1], found[2])
    if not (found := _NO_FILE.search(text)):
        return None
    parts, module = found[1].split("."), ""
    for part in parts if not found[1].endswith(".yaml") else []:
        try:
            importlib.import_module(f"{module}.{part}" if module else part)
        except ImportError:
            break
        module = f"{module}.{part}" if module else part
    if module:
        return _not_in(module, parts[module.count(".") + 1])
    files = nearest(found[1], [str(path) for path in Path(found[1]).parent.glob("*.yaml")])
    there = f" (there are {', '.join(files)})" if files else ""
    return f"{found[1]} is neither a file{there} nor the full path of a class, package.module.Class."


def _not_in(module: str, name: str) -> str:
    names = nearest(name, _networks(module))
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"{module} has no {name}; it has {', '.join(names[:12]) or 'nothing of the kind'}{more}."


def _networks(module: str) -> list[str]:
    """Return the network classes, and functions that make one, of `module`; of a package without any its modules."""
    found, torch = importlib.import_module(module), importlib.import_module("torch")

    def makes_network(member: Any) -> bool:
        kind = member if inspect.isclass(member) else getattr(member, "__annotations__", {}).get("return")
        return inspect.isclass(kind) and issubclass(kind, torch.nn.Module)

    names = [name for name, _ in inspect.getmembers(found, makes_network) if name[0] != "_"]
    return names or [one.name for one in pkgutil.iter_modules(getattr(found, "__path__", [])) if one.name[0] != "_"]


def _shorten(text: str) -> str:
    """Return jsonargparse's nested report as one sentence."""
    lines = [_NOISE.sub("", line.strip().removeprefix("- ")).strip(" :.") for line in text.splitlines()]
    sentence = ": ".join(line for line in lines if line).replace("::", ":")
    for pattern, words in _WORDS:
        sentence = re.sub(pattern, words, sentence)
    return f"{sentence}; the command's --help lists what is accepted."
