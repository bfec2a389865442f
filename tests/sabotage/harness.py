"""Take one practice out of a copy of a rendered project, run the test that must notice, and say whether it did.

code.toml has an entry for each held row of level `code`: `file` and the smallest edit, `old` to `new`, that takes
the practice out, and the `test` that must then fail. guard.toml has one for each held `guard` row: code of the
user's that breaks the rule, as such an edit or as a new `file`, and what the failure `says`. A test notices by an
assertion, or by the exception named in `raises`; that nothing can be imported or collected any more does not count.
"""

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from . import ledger

HERE = Path(__file__).parent
TASK = "image_classification"
SECONDS = 420  # for one test, on a machine that is busy with other things
LONG = ("test_commands.py", "test_resume.py")  # begun first, so that one of them alone does not make the end
LEFT_OUT = {"data", "runs", ".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


@dataclass(frozen=True)
class Entry:
    """One sabotage. Without `old`, `new` is a file of its own."""

    row: str
    file: str
    new: str
    test: str
    old: str = ""
    raises: str = ""
    says: str = ""
    task: str = TASK
    level: str = "code"


@dataclass(frozen=True)
class Result:
    """How one entry ended; `fault` is empty where the test noticed."""

    entry: Entry
    fault: str
    seconds: float


def entries() -> list[Entry]:
    """Return both tables."""
    tables = {level: tomllib.loads((HERE / f"{level}.toml").read_text(encoding="utf-8")) for level in ("code", "guard")}
    return [Entry(**{"level": level} | entry) for level, table in tables.items() for entry in table["entry"]]


def copy(project: Path, folder: Path) -> Path:
    """Return a copy of `project` that shares its files by links, and its data."""
    shutil.copytree(project, folder, copy_function=os.link, ignore=lambda _, names: LEFT_OUT & set(names))
    (project / "data").mkdir(exist_ok=True)
    (folder / "data").symlink_to(project / "data")
    return folder


def edited(entry: Entry, project: Path) -> tuple[str, str]:
    """Return the new text of the entry's file in `project`, and what is wrong with the edit, if anything."""
    path = project / entry.file
    if not entry.old:
        return entry.new, f"{entry.file} exists" if path.exists() else ""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    count = text.count(entry.old)
    return text.replace(entry.old, entry.new), "" if count == 1 else f"{entry.file} holds the old text {count} times"


def edit(entry: Entry, project: Path) -> str:
    """Take the practice out of `project`, and return what is wrong with the edit, if anything."""
    text, fault = edited(entry, project)
    if not fault:
        path = project / entry.file
        path.unlink(missing_ok=True)  # a link: the other copies keep theirs
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return fault


def judge(entry: Entry, answer: dict) -> str:
    """Return why `answer` does not show that the test noticed, or nothing."""
    reports = answer["reports"]
    if not reports:
        return "ran out of time, or was not found"
    for report in reports:
        if report["when"] != "call":
            return (
                f"{report['outcome']} in {report['when']}, not in the test: {report['raised']} {report['text'][:300]}"
            )
    failed = [report for report in reports if report["outcome"] == "failed"]
    if not failed:
        return "stays green"
    expected = {entry.raises} if entry.raises else {"AssertionError", "Failed"}
    for report in failed:
        if report["raised"] not in expected:
            return f"fails by {report['raised']} instead of {' or '.join(sorted(expected))}: {report['text'][:300]}"
        if entry.says not in report["text"]:
            return f"does not say {entry.says!r}: {report['text'][:300]}"
    return ""


class Pool:
    """Two workers; each call of `ask` waits for a free one."""

    def __init__(self, size: int = 2) -> None:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        command = [sys.executable, str(HERE / "worker.py")]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.workers = [subprocess.Popen(command, env=os.environ | threads, **pipes) for _ in range(size)]
        self.free: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
        for worker in self.workers:
            self.free.put(worker)

    def ask(self, **job: object) -> dict:
        """Return how the job's tests ended."""
        worker = self.free.get()
        try:
            print(json.dumps(job), file=worker.stdin, flush=True)
            return json.loads(worker.stdout.readline() or '{"reports": []}')
        finally:
            self.free.put(worker)

    def close(self) -> None:
        """End the workers once they are done."""
        for worker in self.workers:
            worker.stdin.close()
            worker.wait()


def each(jobs: Iterable, work: Callable) -> Iterator:
    """Yield what `work` returns for each of `jobs`, two at a time, as they end."""
    waiting: queue.SimpleQueue = queue.SimpleQueue()
    done: queue.SimpleQueue = queue.SimpleQueue()
    count = 0
    for job in jobs:
        waiting.put(job)
        count += 1

    def go() -> None:
        while True:
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put(work(job))
            except BaseException as error:
                done.put(error)

    for _ in range(2):
        threading.Thread(target=go, daemon=True).start()
    for _ in range(count):
        result = done.get()
        if isinstance(result, BaseException):
            raise result
        yield result


def run(chosen: list[Entry], render: Callable[..., Path], folder: Path, say: Callable[[str], None]) -> list[Result]:
    """Return how each of `chosen` ended. First their tests must be green on the unedited projects."""
    projects = {task: render(task=task, logger="csv", package="digit_reader") for task in {e.task for e in chosen}}
    pool = Pool()
    try:
        red = control(chosen, projects, pool, folder, say)

        def work(entry: Entry) -> Result:
            started = time.monotonic()
            fault = red.get((entry.task, entry.test)) or sabotage(entry, projects[entry.task], pool, folder)
            return Result(entry, fault, time.monotonic() - started)

        results = []
        for result in each(sorted(chosen, key=lambda e: not e.test.split("::")[0].endswith(LONG)), work):
            words = f"NOT HELD  {result.fault}" if result.fault else "noticed"
            say(f"{result.entry.level:<6}{result.entry.row:<30}{result.seconds:6.1f} s  {words}")
            results.append(result)
        return results
    finally:
        pool.close()


def sabotage(entry: Entry, project: Path, pool: Pool, folder: Path) -> str:
    """Return why the test of `entry` did not notice, or nothing."""
    place = copy(project, folder / f"{entry.level}-{entry.row}")
    fault = edit(entry, place)
    if not fault:
        log = folder / f"{entry.level}-{entry.row}.log"
        fault = judge(entry, pool.ask(folder=str(place), log=str(log), tests=[entry.test], seconds=SECONDS))
    return fault


def control(
    chosen: list[Entry], projects: dict[str, Path], pool: Pool, folder: Path, say: Callable[[str], None]
) -> dict[tuple[str, str], str]:
    """Return which of the named tests are not green before anything is edited."""
    started = time.monotonic()
    groups: dict[tuple[str, str], set[str]] = {}
    for entry in chosen:
        groups.setdefault((entry.task, entry.test.split("::")[0]), set()).add(entry.test)
    # The first run of each task writes the demo's data, which all copies then share.
    for task in projects:
        copy(projects[task], folder / f"control-{task}")

    def work(group: tuple[tuple[str, str], set[str]]) -> dict[tuple[str, str], str]:
        (task, file), tests = group
        log = folder / f"control-{task}-{Path(file).stem}.log"
        place = folder / f"control-{task}"
        seconds = SECONDS * len(tests)
        reports = pool.ask(folder=str(place), log=str(log), tests=sorted(tests), seconds=seconds)["reports"]
        red = {}
        for test in tests:
            mine = [r for r in reports if r["test"] == test or r["test"].startswith(f"{test}[")]
            bad = next((r for r in mine if r["outcome"] != "passed"), None)
            if bad or not mine:
                red[task, test] = f"not green unedited: {bad['raised'] + ' ' + bad['text'][:300] if bad else 'not run'}"
        return red

    red = {}
    for part in each(sorted(groups.items(), key=lambda group: not group[0][1].endswith(LONG)), work):
        red |= part
    tests = sum(map(len, groups.values()))
    say(f"control: {tests - len(red)} of {tests} named tests are green unedited ({time.monotonic() - started:.0f} s)")
    return red


def summary(results: list[Result]) -> str:
    """Return the line that ends `make sabotage`."""
    rows = ledger.read()
    held = {result.entry.row for result in results if not result.fault}
    held -= {result.entry.row for result in results if result.fault}
    words = []
    for level in ("code", "guard"):
        names = [row.name for row in rows if row.level == level]
        words.append(f"{len(held & set(names))} of {len(names)} {level} rows")
    return f"{', '.join(words)} held"
