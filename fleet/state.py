"""The state file .cruft.json: which template, which version, which answers. The format is cruft's."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.errors import FleetError, strip_credentials

STATE = ".cruft.json"
Answers = dict[str, Any]


@dataclass
class State:
    """What the state file says, and the whole of it, so that keys of others survive."""

    document: dict[str, Any]

    @property
    def template(self) -> str:
        """Return the template's address."""
        return str(self.document["template"])

    @property
    def commit(self) -> str:
        """Return the template's commit that the project is at."""
        return str(self.document["commit"])

    @property
    def directory(self) -> str | None:
        """Return the subfolder of the template's repository, if any."""
        return self.document.get("directory") or None

    @property
    def skip(self) -> list[str]:
        """Return the patterns of files that updates leave alone."""
        return [str(pattern) for pattern in self.document.get("skip") or []]

    @property
    def answers(self) -> Answers:
        """Return the public answers; private variables are derived anew at every render."""
        stored = self.document["context"]["cookiecutter"]
        return {key: value for key, value in stored.items() if not key.startswith("_")}

    @property
    def named(self) -> str:
        """Return the address as the template's own files may print it."""
        return str(self.document["context"]["cookiecutter"].get("_template", self.template))

    def moved(self, commit: str, tag: str | None, answers: Answers, skip: list[str]) -> "State":
        """Return the state of the same project at another version."""
        context = {**answers, "_template": strip_credentials(self.named)}
        changed = {
            "template": strip_credentials(self.template),
            "commit": commit,
            "checkout": None,
            "context": {"cookiecutter": context},
            "skip": skip,
            "tag": tag,
            "dirty": False,
        }
        return State({**self.document, **changed})

    def text(self) -> str:
        """Return the file's content."""
        return json.dumps(self.document, indent=2, ensure_ascii=False) + "\n"


def load_state(project: Path) -> State:
    """Read and check the state file of a project."""
    path = project / STATE
    adopt = "run `fleet adopt --template URL` in the project"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        context = document["context"]["cookiecutter"]
        valid = isinstance(document["template"], str) and isinstance(context, dict)
    except FileNotFoundError as error:
        raise FleetError(f"{project} must hold a {STATE} that says its template, but has none: {adopt}.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__} {error}"
        raise FleetError(
            f"{path} must be JSON with template, commit and context, but cannot be read ({reason}): "
            "restore it from an earlier commit."
        ) from error
    if not valid:
        raise FleetError(f"{path} must hold a template address and answers: restore it from an earlier commit.")
    if not document.get("commit"):
        raise FleetError(
            f"{path} names no commit, as the project was made from a template without version control: {adopt}."
        )
    if document.get("dirty"):
        raise FleetError(
            f"{path} says that the template had uncommitted changes when the project was made, so its version "
            f"is not known: {adopt}."
        )
    return State(document)
