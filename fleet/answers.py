"""Carry a project's answers from one version of the template's questions to another."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet.errors import FleetError
from fleet.state import Answers

Questions = Mapping[str, Any]


@dataclass
class Migration:
    """The answers for the new version, and what became of each answer that changed."""

    answers: Answers
    migrated: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    renames: dict[str, str] = field(default_factory=dict)

    def apply(self, rules: Mapping[str, Any], offered: Questions) -> None:
        """Apply one version's `_migrate` rules, each to an answer that is still there."""
        for key, rule in rules.items():
            if key not in self.answers:
                continue
            value, target = self.answers[key], rule.get("to", key)
            if rule.get("drop"):
                del self.answers[key]
                self.dropped[key] = f"{value!r}, the template no longer asks"
            elif target == key or key not in offered:
                del self.answers[key]
                changed = rule.get("map", {}).get(str(value), value)
                self.answers[target] = changed
                if (target, changed) != (key, value):
                    self.migrated[key] = f"{key}={value} is now {target}={changed}"


def migrate(stored: Answers, steps: Iterable[Questions], before: Questions) -> Migration:
    """Walk through the questions of every version passed, oldest first.

    A rule counts at the version where it first stands: template authors may keep old rules or
    remove them, and a name that was renamed away may come back with another meaning.
    """
    result = Migration(dict(stored))
    for questions in steps:
        result.apply(_news(before, questions, "_migrate"), questions)
        result.renames |= _news(before, questions, "_renames")
        before = questions
    return result


def migrate_back(stored: Answers, steps: Sequence[Questions], target: Questions) -> Migration:
    """Undo the rules of the versions in `steps` (newest first), for a downgrade."""
    result = Migration(dict(stored))
    for questions, earlier in zip(steps, [*steps[1:], target], strict=True):
        rules = _news(earlier, questions, "_migrate")
        result.apply({r.get("to", key): _inverse(key, r) for key, r in rules.items() if not r.get("drop")}, earlier)
        result.renames |= {new: old for old, new in _news(earlier, questions, "_renames").items()}
    return result


def _inverse(key: str, rule: Mapping[str, Any]) -> dict[str, Any]:
    back = {str(new): old for old, new in rule.get("map", {}).items()}
    return {"to": key, "map": back}


def _news(before: Questions, after: Questions, name: str) -> dict[str, Any]:
    known = before.get(name) or {}
    return {key: rule for key, rule in (after.get(name) or {}).items() if known.get(key) != rule}


def public(questions: Questions) -> dict[str, Any]:
    """Return the questions that a person answers."""
    return {key: raw for key, raw in questions.items() if not key.startswith("_")}


def override(answers: Answers, given: Mapping[str, str], offered: Questions, version: str) -> None:
    """Put the answers of --set in place; an unknown name is refused with the known ones."""
    for key, value in given.items():
        if key not in public(offered):
            known = ", ".join(public(offered))
            raise FleetError(f"--set {key}: version {version} asks no such question, only {known}: correct the name.")
        answers[key] = value


def check_choices(answers: Answers, offered: Questions, version: str) -> None:
    """Refuse an answer that is not among the version's choices."""
    for key, raw in public(offered).items():
        if not isinstance(raw, list) or key not in answers or any("{{" in str(choice) for choice in raw):
            continue
        if answers[key] not in raw:
            raise FleetError(
                f"The answer {key}={answers[key]} is not offered by version {version}, which offers "
                f"{', '.join(map(str, raw))}: choose with --set {key}=VALUE."
            )


def drop_unasked(
    result: Migration, offered: Questions, defaults: Mapping[str, Any], version: str, allowed: Iterable[str]
) -> None:
    """Take out the answers that the version does not ask; one that says something needs a decision."""
    new = [key for key in public(offered) if key not in result.answers]
    for key in [key for key in result.answers if key not in public(offered)]:
        value = result.answers.pop(key)
        if key not in allowed and value != defaults.get(key):
            others = f" (new there: {', '.join(new)})" if new else ""
            raise FleetError(
                f"The answer {key}={value} would be lost, as version {version} does not ask it{others}: "
                f"set another with --set NAME=VALUE and give this one up with --drop {key}."
            )
        result.dropped[key] = f"{value!r}, not asked by this version"
