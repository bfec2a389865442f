"""Render a template in a process of its own, untouched by the user's cookiecutter configuration.

`python -m fleet.render` is that process: each line of its input is a list of jobs, and it answers with
one line when they are done. Every job runs in a fork: a template's extension modules are cached by
name in a process, so two versions in one process would share the first one's.
"""

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fleet.errors import FleetError
from fleet.git import environment
from fleet.state import Answers
from fleet.template import Template


@dataclass(frozen=True)
class Job:
    """One render: a commit of the template with answers."""

    commit: str
    answers: Answers
    named: str

    def key(self) -> str:
        """Return a name that equal jobs share."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Render:
    """A rendered project, and what the template says about its files."""

    folder: Path
    context: dict[str, Any]
    defaults: dict[str, Any]
    once: list[str]
    renames: dict[str, str]


class Renderer:
    """Render templates below a folder; equal renders are made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._idle = [_start()]

    def __enter__(self) -> "Renderer":
        """Use the renderer until its render processes are ended."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the render processes."""
        for server in self._idle:
            server.communicate()

    def render(self, template: Template, *jobs: Job) -> list[Render]:
        """Return the renders of `jobs`, making those that are not there yet in one process."""
        with ExitStack() as held:
            # In one order everywhere, so that two threads never wait for each other.
            for key in sorted({job.key() for job in jobs}):
                held.enter_context(self._lock_of(key))
            missing = {job.key(): job for job in jobs if not self._result(job).is_file()}
            self._make(template, missing.values())
        return [self._read(job) for job in jobs]

    def _lock_of(self, name: str) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(name, threading.Lock())

    def _result(self, job: Job) -> Path:
        return self.folder / job.key() / "result.json"

    def _read(self, job: Job) -> Render:
        found = json.loads(self._result(job).read_text(encoding="utf-8"))
        return Render(Path(found.pop("folder")), **found)

    def _source(self, template: Template, commit: str) -> Path:
        folder = self.folder / f"template-{commit}"
        with self._lock_of(commit):
            if not folder.exists():
                template.checkout(commit, folder)
        return folder / (template.directory or ".")

    def _make(self, template: Template, jobs: Iterable[Job]) -> None:
        asked = [
            {
                **asdict(job),
                "source": str(self._source(template, job.commit)),
                "output": str(self._result(job).parent),
            }
            for job in jobs
        ]
        if not asked:
            return
        with self._lock:
            server = self._idle.pop() if self._idle else _start()
        said = _ask(server, asked)
        with self._lock:
            self._idle.append(server)
        if said:
            raise FleetError(f"The template {template.url} could not be rendered: {said}")


def _start() -> subprocess.Popen[str]:
    """Start a render process, which loads cookiecutter while its caller does something else."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, paths))
    env = environment({"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": path})
    command = [sys.executable, "-m", "fleet.render"]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command,
        stdin=pipe,
        stdout=pipe,
        encoding="utf-8",
        env=env,
        start_new_session=True,  # an interrupt is for the caller, whose end this process notices
    )


def _ask(server: subprocess.Popen[str], jobs: list[dict[str, Any]]) -> str:
    """Send jobs to a render process and return what went wrong, or nothing."""
    assert server.stdin and server.stdout
    try:
        server.stdin.write(json.dumps(jobs) + "\n")
        server.stdin.flush()
    except OSError:
        return "the render process could not be started"
    answer = server.stdout.readline()
    return str(json.loads(answer)) if answer else "the render process ended"


def _render(job: dict[str, Any]) -> None:
    """Render one job and write its result; runs in a fork."""
    from cookiecutter.generate import generate_context, generate_files  # type: ignore[import-untyped]
    from cookiecutter.hooks import run_pre_prompt_hook  # type: ignore[import-untyped]
    from cookiecutter.prompt import prompt_for_config, render_variable  # type: ignore[import-untyped]
    from cookiecutter.utils import create_env_with_context  # type: ignore[import-untyped]

    output = Path(job["output"])
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    source = str(run_pre_prompt_hook(job["source"]))
    sys.path.insert(0, source)  # first: the folder of this program may hold a template's modules too
    file = str(Path(source, "cookiecutter.json"))
    asked = generate_context(file)["cookiecutter"]
    given = {key: _literal(value, asked.get(key)) for key, value in job["answers"].items() if key in asked}
    context = generate_context(file, extra_context=given)
    env = create_env_with_context(context)
    final: dict[str, Any] = prompt_for_config(context, no_input=True)
    place = {"_template": job["named"], "_output_dir": str(output), "_repo_dir": source, "_checkout": None}
    context["cookiecutter"].update({**final, **place})
    folder = generate_files(source, context, str(output), accept_hooks=True)
    shutil.rmtree(Path(folder, ".git"), ignore_errors=True)  # a hook may have made a repository of it
    defaults: dict[str, Any] = {}
    for key, raw in asked.items():
        if not key.startswith("_"):
            default = render_variable(env, raw, {**defaults, **final})
            defaults[key] = default[0] if isinstance(raw, list) and default else default
    result = {
        "folder": folder,
        "context": {key: value for key, value in final.items() if not key.startswith("_")},
        "defaults": defaults,
        "once": render_variable(env, list(asked.get("_once") or []), final),
        "renames": render_variable(env, dict(asked.get("_renames") or {}), final),
    }
    (output / "result.json").write_text(json.dumps(result), encoding="utf-8")


def _literal(value: Any, raw: Any) -> Any:
    """Return an answer such that rendering it gives it back: braces in it are text, not Jinja."""
    if isinstance(value, str) and isinstance(raw, str) and "{" in value:
        return "{{ " + json.dumps(value, ensure_ascii=False) + " }}"
    return value


def _fork(job: dict[str, Any], log: int) -> int:
    """Render in a child whose output, and that of the template's hooks, goes to `log`."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        _render(job)
        status = 0
    except BaseException as error:  # what a template's own code raises is told as one sentence
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _serve(jobs: list[dict[str, Any]]) -> str:
    """Render jobs side by side; return what those that failed printed."""
    with tempfile.TemporaryFile("w+") as log:
        children = [_fork(job, log.fileno()) for job in jobs]
        failed = [child for child in children if os.waitpid(child, 0)[1]]
        log.seek(0)
        return " ".join(log.read().split()) or "no reason given" if failed else ""


def main() -> None:
    """Answer each line of standard input."""
    logging.disable()  # a failing hook would print a traceback besides its own words
    import cookiecutter.generate  # type: ignore[import-untyped]
    import cookiecutter.prompt  # noqa: F401 - loaded once, before the forks

    for line in sys.stdin:
        print(json.dumps(_serve(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
