"""`python -m PACKAGE todo`: the places still to be made yours, read from the marks in the project's files."""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

MARK = re.compile(r"TODO\(you\):\s*(.+)")
FILES = ("configs/*.yaml", "src/**/*.py")


def marks(project: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield file, line and text of every mark, in the order of TODO.md: configuration first, then code."""
    for pattern in FILES:
        for path in sorted(project.glob(pattern)):
            if path == Path(__file__).resolve():
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if found := MARK.search(line):
                    yield path.relative_to(project), number, found[1].strip()


def main(arguments: Sequence[str]) -> None:
    """Print the marks; with --check, exit 1 while there are any."""
    parser = argparse.ArgumentParser(prog="todo", description="List what is still to be made yours.")
    parser.add_argument("--check", action="store_true", help="exit with 1 while any is open")
    check = parser.parse_args(arguments).check
    found = list(marks(Path.cwd()))
    for path, line, text in found:
        print(f"{path}:{line}\n    {text}")
    print(f"{len(found)} open; TODO.md says how to do each." if found else "Nothing is open.")
    if check and found:
        raise SystemExit(1)
