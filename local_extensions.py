"""Jinja filters of the template: names that are derived, and strings quoted as the file needs.

Cookiecutter's own `tojson` and `jsonify` write apostrophes and non-ASCII as escapes; valid, but
nobody wants to read their own name so. These escape only what TOML and YAML ask for, whose
double-quoted strings agree on every escape used here.
"""

import re

from jinja2 import Environment
from jinja2.ext import Extension


def quoted(text: str) -> str:
    """Return `text` as a double-quoted string that is valid in TOML and in YAML."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


def one_line(text: str) -> str:
    """Return `text` with every run of white space as one space, for prose and headings."""
    return " ".join(text.split())


def package_name(project: str) -> str:
    """Return the import name that `project` suggests: `Digit-Reader 2` gives `digit_reader_2`."""
    return re.sub(r"[^a-z0-9]+", "_", project.lower()).strip("_")


def folder_name(project: str) -> str:
    """Return a folder name that can only lie where it is asked for.

    For every answer that the pre hook accepts this is `project` itself. The answers it refuses
    reach the file system before it can speak (`a/b`, `..`), so they must not name another place.
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", project).strip("-")[:60] or "refused"


class NamesAndQuotes(Extension):
    """Register the filters above."""

    def __init__(self, environment: Environment) -> None:
        """Add each filter under its own name."""
        super().__init__(environment)
        for function in (quoted, one_line, package_name, folder_name):
            environment.filters[function.__name__] = function
