"""The command line: `fleet update`, `status`, `rollout`, `diff`, `adopt` and `add`."""

import argparse
import json
import sys
from pathlib import Path

from fleet.errors import FleetError, mask
from fleet.report import Report
from fleet.update import Options, abort, check, update

EXIT_CODES = "exit codes: 0 done, 1 something is left for you (conflicts, behind), 2 refused, nothing touched"


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, but is {text!r}")
    return key, value


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser("fleet", description="Keep projects on the newest version of their template.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_update(commands.add_parser("update", help="update one project", epilog=EXIT_CODES))
    _add_diff(commands.add_parser("diff", help="what the template changed between two versions"))
    _add_status(commands.add_parser("status", help="where the projects of a fleet stand"))
    _add_rollout(commands.add_parser("rollout", help="update many projects, each on a branch"))
    _add_adopt(commands.add_parser("adopt", help="give a project made without one its state file"))
    _add_add(commands.add_parser("add", help="bring what another answer generates beside what is there"))
    return top


def _add_update(command: argparse.ArgumentParser) -> None:
    command.add_argument("project", nargs="?", type=Path, default=Path(), help="its folder (default: here)")
    command.add_argument("--to", metavar="TAG", help="the version (default: the newest tag)")
    command.add_argument("--set", metavar="NAME=VALUE", type=_pair, action="append", default=[], help="an answer")
    command.add_argument("--drop", metavar="NAME", action="append", default=[], help="give up an answer")
    command.add_argument("--branch", nargs="?", const="", metavar="NAME", help="on a new branch (fleet/TAG)")
    command.add_argument("--commit", action="store_true", help="commit, unless there are conflicts")
    command.add_argument("--json", action="store_true", help="print the report as JSON")
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="only say whether a newer version exists: exit 1 if so")
    mode.add_argument("--diff", action="store_true", help="show how managed files differ from their version")
    mode.add_argument("--dry-run", action="store_true", help="say what would happen and touch nothing")
    mode.add_argument("--abort", action="store_true", help="undo an update that is not committed yet")
    command.set_defaults(run=_update)


def _add_diff(command: argparse.ArgumentParser) -> None:
    command.add_argument("--project", type=Path, default=Path(), help="whose answers to use (default: here)")
    command.add_argument("--from", dest="before", metavar="TAG", help="default: the project's version")
    command.add_argument("--to", dest="after", metavar="TAG", help="default: the newest version")
    command.add_argument("paths", nargs="*", metavar="PATH", help="only these files or patterns")
    command.set_defaults(run=_diff)


def _add_adopt(command: argparse.ArgumentParser) -> None:
    command.add_argument("project", nargs="?", type=Path, default=Path(), help="its folder (default: here)")
    command.add_argument("--template", metavar="URL", required=True, help="the template's address")
    command.add_argument("--directory", help="the template's folder in its repository")
    command.add_argument("--set", metavar="NAME=VALUE", type=_pair, action="append", default=[], help="an answer")
    command.set_defaults(run=_adopt)


def _adopt(given: argparse.Namespace) -> int:
    from fleet.adopt import adopt

    report = adopt(given.project, given.template, given.directory, dict(given.set))
    print("\n".join(report.lines()).replace("New answers:", "Answers:"))
    return report.exit_code


def _add_add(command: argparse.ArgumentParser) -> None:
    command.add_argument("answer", type=_pair, metavar="NAME=VALUE", help="such as task=text_classification")
    command.add_argument("project", nargs="?", type=Path, default=Path(), help="its folder (default: here)")
    command.set_defaults(run=_add)


def _add(given: argparse.Namespace) -> int:
    from fleet.add import add

    added = add(given.project, *given.answer)
    print("\n".join(added.lines()))
    return 1 if added.by_hand else 0


def _add_many(command: argparse.ArgumentParser) -> None:
    command.add_argument("fleet", type=Path, metavar="fleet.toml", help="the file that lists the projects")
    command.add_argument("--only", metavar="NAME", action="append", default=[], help="a name or pattern")
    command.add_argument("--jobs", type=_positive, default=2, help="projects side by side (default: 2)")


def _add_status(command: argparse.ArgumentParser) -> None:
    _add_many(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_status)


def _add_rollout(command: argparse.ArgumentParser) -> None:
    _add_many(command)
    command.add_argument("--to", metavar="TAG", required=True, help="the version")
    command.add_argument("--limit", type=_positive, help="update at most so many projects")
    command.add_argument("--canary", type=int, default=0, help="stop unless the first so many are green")
    command.add_argument("--no-checks", action="store_true", help="run neither the check nor the test command")
    command.add_argument("--pr-command", metavar="COMMAND", help="run after each push, with FLEET_* variables")
    command.add_argument("--dry-run", action="store_true", help="do all but push")
    command.add_argument("--report", type=Path, metavar="STEM", help="default: fleet-report-TAG (.json, .md)")
    command.set_defaults(run=_rollout)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, but is {number}")
    return number


def _status(given: argparse.Namespace) -> int:
    from fleet import tables
    from fleet.fleetfile import load_fleet
    from fleet.status import standings

    fleet = load_fleet(given.fleet)
    with tables.progress("Looking at", len(fleet.chosen(given.only))) as done:
        found = standings(fleet, given.only, given.jobs, done)
    rows = [standing.document() for standing in found]
    if given.json:
        print(mask(json.dumps(rows, indent=2, ensure_ascii=False)))
    else:
        tables.show(rows, tables.STATUS, "Fleet")
    return 0 if all(standing.well for standing in found) else 1


def _rollout(given: argparse.Namespace) -> int:
    from fleet import tables
    from fleet.fleetfile import load_fleet
    from fleet.rollout import GREEN, LEFT_OUT, Plan, Rollout

    fleet = load_fleet(given.fleet)
    plan = Plan(
        to=given.to,
        only=given.only,
        limit=given.limit,
        jobs=given.jobs,
        canary=given.canary,
        checks=not given.no_checks,
        pr_command=given.pr_command,
        dry_run=given.dry_run,
    )
    with tables.progress("Updating", len(fleet.chosen(given.only))) as done:
        outcomes = Rollout(fleet, plan, done).run()
    stem = given.report or Path(f"fleet-report-{given.to}")
    tables.write_report(stem, given.to, outcomes)
    tables.show([outcome.document() for outcome in outcomes], tables.ROLLOUT, f"Rollout of {given.to}")
    print(f"{tables.summary(outcomes)} Report: {stem}.md and {stem}.json")
    return 0 if all(outcome.status in (*GREEN, *LEFT_OUT) for outcome in outcomes) else 1


def _update(given: argparse.Namespace) -> int:
    if given.diff:
        from fleet.drift import drift

        return _print_diff(drift(given.project), given.json)
    try:
        report = _report(given)
    except FleetError as error:
        report = Report(str(given.project), "refused", message=str(error))
        if not given.json:
            raise
    if given.json:
        print(mask(json.dumps(report.document(), indent=2, ensure_ascii=False)))
    else:
        print("\n".join(report.lines()))
    return report.exit_code


def _report(given: argparse.Namespace) -> Report:
    if given.abort:
        return abort(given.project)
    if given.check:
        return check(given.project)
    options = Options(
        to=given.to,
        set=dict(given.set),
        drop=tuple(given.drop),
        dry_run=given.dry_run,
        commit=given.commit,
        branch=given.branch,
    )
    return update(given.project, options)


def _diff(given: argparse.Namespace) -> int:
    from fleet.drift import template_diff

    return _print_diff(template_diff(given.project, given.before, given.after, given.paths), False)


def _print_diff(diffs: dict[str, str], as_json: bool) -> int:
    if as_json:
        print(json.dumps(diffs, indent=2, ensure_ascii=False))
    else:
        sys.stdout.buffer.write("".join(f"{d}\n" for d in diffs.values()).encode("utf-8", "surrogateescape"))
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = parser().parse_args(arguments)
    try:
        return int(given.run(given))
    except FleetError as error:
        print(f"fleet: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fleet: interrupted; run the same command again.", file=sys.stderr)
        return 2
