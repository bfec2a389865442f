"""Small template repositories and projects made from them, as real git repositories."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = "{{cookiecutter.__folder}}"
MARKERS = ("<<<<<<<", "|||||||", "=======", ">>>>>>>")

HOOK = '''
import json, subprocess
from pathlib import Path
ANSWERS = json.loads(r"""{{ cookiecutter | jsonify }}""")
REPO = ANSWERS.get("_repo_dir") or "."
def git(*args):
    done = subprocess.run(["git", "-C", REPO, *args], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
if "_commit" not in ANSWERS:
    top = git("rev-parse", "--show-toplevel")
    inside = str(Path(REPO).resolve().relative_to(Path(top).resolve())) if top else "."
    url = git("remote", "get-url", "origin") or top or REPO
    kept = {k: v for k, v in ANSWERS.items() if not k.startswith("_")}
    Path(".cruft.json").write_text(json.dumps({
        "template": url, "commit": git("rev-parse", "HEAD") if top else None, "checkout": None,
        "context": {"cookiecutter": {**kept, "_template": url}},
        "directory": None if inside == "." else inside, "skip": [],
        "tag": git("describe", "--tags", "--exact-match") if top else None,
        "dirty": bool(top and git("status", "--porcelain")),
    }, indent=2) + "\\n")
'''

# Plain cookiecutter in a process that is started once: each line names a job, done in a fork.
SERVER = """
import json, os, sys
from cookiecutter.main import cookiecutter
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if not child:
        status = 1
        try:
            os.dup2(2, 1)
            os.environ.clear()
            os.environ.update(job["env"])
            os.chdir(job["cwd"])
            cookiecutter(job["template"], no_input=True, extra_context=job["answers"], output_dir=job["output"])
            status = 0
        finally:
            os._exit(status)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@cache
def cookiecutter_server() -> subprocess.Popen[str]:
    """Start the process; away from the repository's root, whose modules would be imported first."""
    command = [sys.executable, "-c", SERVER]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd="/")


def cookiecutter(template: Path, output: Path, answers: dict[str, str]) -> None:
    """Generate a project as `cookiecutter --no-input` does."""
    server = cookiecutter_server()
    assert server.stdin and server.stdout
    names = {"template": str(template), "output": str(output), "cwd": str(template)}
    server.stdin.write(json.dumps({**names, "answers": answers, "env": dict(os.environ)}) + "\n")
    server.stdin.flush()
    assert server.stdout.readline().strip() == "0", "cookiecutter failed, see the standard error output"


LINES = [f"line {number}" for number in range(1, 31)]


def lines(**changed: str) -> str:
    """Return thirty lines, some of them changed: lines(l3="three")."""
    return "".join(f"{changed.get(f'l{n}', line)}\n" for n, line in enumerate(LINES, 1))


def git(folder: Path, *arguments: str) -> str:
    """Run git and return its output."""
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def write(folder: Path, files: dict[str, str | bytes | None]) -> None:
    """Write files; None deletes one, a text that starts with -> makes a symlink, #! an executable."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or path.is_file():
            path.unlink()
        if isinstance(content, str) and content.startswith("->"):
            path.symlink_to(content[2:])
        elif content is not None:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            path.chmod(0o755 if content[:2] in ("#!", b"#!") else 0o644)


class Template:
    """A template repository with versions."""

    def __init__(self, folder: Path, directory: str = "") -> None:
        self.top, self.folder = folder, folder / directory
        self.folder.mkdir(parents=True)
        self.questions: dict[str, Any] = {
            "project": "demo",
            "package": "{{ cookiecutter.project.replace('-', '_') }}",
            "task": ["vision", "text"],
            "__folder": "{{ cookiecutter.project }}",
        }
        git(self.top, "init", "-q", "-b", "main")
        write(self.folder, {"hooks/post_gen_project.py": HOOK, f"{FOLDER}/LICENSE": "MIT\n"})

    def version(
        self,
        tag: str | None,
        files: dict[str, str | bytes | None] | None = None,
        root: dict[str, str | bytes | None] | None = None,
        **questions: Any,
    ) -> str:
        """Commit a version: files of the project, files of the template itself, and questions."""
        write(self.folder / FOLDER, files or {})
        write(self.folder, root or {})
        self.questions.update(questions)
        self.questions = {k: v for k, v in self.questions.items() if v is not None}
        write(self.folder, {"cookiecutter.json": json.dumps(self.questions, indent=2)})
        git(self.top, "add", "-A", "-f")
        git(self.top, "commit", "-q", "--allow-empty", "-m", f"Version {tag}")
        if tag:
            git(self.top, "tag", tag)
        return git(self.top, "rev-parse", "HEAD")

    def generate(self, output: Path, tag: str | None = None, **answers: str) -> Path:
        """Generate a project with plain cookiecutter."""
        if tag:
            git(self.top, "checkout", "-q", tag)
        cookiecutter(self.folder, output, answers)
        if tag:
            git(self.top, "checkout", "-q", "main")
        return output / answers.get("project", self.questions["project"])


@dataclass
class Project:
    """A generated project in a repository of its own."""

    folder: Path

    def commit(self, files: dict[str, str | bytes | None] | None = None, message: str = "Work") -> None:
        """Write files and commit everything, ignored files too."""
        write(self.folder, files or {})
        git(self.folder, "add", "-A", "-f")
        git(self.folder, "commit", "-q", "--allow-empty", "-m", message)

    def read(self, name: str) -> str:
        """Return a file's text."""
        return (self.folder / name).read_bytes().decode()

    def has(self, name: str) -> bool:
        """Return whether a file is there."""
        return os.path.lexists(self.folder / name)

    @property
    def state(self) -> dict[str, Any]:
        """Return the state file."""
        return dict(json.loads(self.read(".cruft.json")))

    def status(self) -> str:
        """Return what git says is not committed."""
        return git(self.folder, "status", "--porcelain")

    def unmerged(self) -> list[str]:
        """Return the files with conflicts."""
        return git(self.folder, "diff", "--name-only", "--diff-filter=U").splitlines()

    def snapshot(self) -> dict[str, object]:
        """Return every file of the working tree, the index and the branch, to compare."""
        files: dict[str, object] = {
            str(p.relative_to(self.folder)): (p.read_bytes(), p.stat().st_mode)
            for p in self.folder.rglob("*")
            if p.is_file() and ".git" not in p.relative_to(self.folder).parts
        }
        index = git(self.folder, "ls-files", "-s")
        return {**files, "index": index, "head": git(self.folder, "rev-parse", "HEAD")}


@dataclass
class Said:
    """What a run of the command line returned and printed."""

    code: int
    text: str


Run = Callable[..., Said]
Make = Callable[..., Project]


def project_of(template: Template, output: Path, tag: str, **answers: str) -> Project:
    """Generate a project from a version and commit it."""
    project = Project(template.generate(output, tag, **answers))
    git(project.folder, "init", "-q", "-b", "main")
    project.commit(message="Generate")
    return project
