"""Time one update beside cruft and copier, and a rollout over many repositories.

    python bench/fleet_speed.py --copier PATH/TO/copier

The tools take turns on fresh copies of one project, so that a busy machine slows all of them alike.
Printed are medians and ratios; every update is the same one: three files changed, one renamed, one
added, in a project whose user edited two files.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "fleet")]

from fleet_helpers import FOLDER, Project, Template, git, project_of, write  # noqa: E402

FILES = 60
COPIER = (
    "_subdirectory: project\n_answers_file: .copier-answers.yml\n"
    "project:\n  type: str\n  default: demo\ntask:\n  type: str\n  choices: [vision, text]\n  default: vision\n"
)


def page(number: int, changed: bool = False) -> str:
    """Return a file of a hundred lines."""
    lines = [f"page {number} line {line}" for line in range(100)]
    lines[5] = "made for {{ cookiecutter.project }}"
    if changed:
        lines[50] = "changed by the template"
    return "\n".join(lines) + "\n"


def versions(folder: Path) -> Template:
    """Make a template with two versions."""
    template = Template(folder / "template")
    template.version("v0.1.0", {f"src/page{n}.txt": page(n) for n in range(FILES)})
    changed: dict[str, str | bytes | None] = {f"src/page{n}.txt": page(n, True) for n in range(3)}
    changed |= {"src/page9.txt": None, "src/renamed.txt": page(9), "added.txt": "added\n"}
    template.version("v0.2.0", changed)
    return template


def copier_versions(template: Template, folder: Path) -> Path:
    """Make the same two versions for copier."""
    other = folder / "copier-template"
    git(folder, "init", "-q", str(other))
    for tag in ("v0.1.0", "v0.2.0"):
        git(template.top, "checkout", "-q", tag)
        shutil.rmtree(other / "project", ignore_errors=True)
        for path in (template.folder / FOLDER).rglob("*"):
            if path.is_file():
                name = path.relative_to(template.folder / FOLDER)
                text = path.read_text().replace("cookiecutter.", "")
                write(other / "project", {f"{name}.jinja": text})
        answers = "{{ _copier_answers|to_nice_yaml -}}"
        write(other, {"copier.yml": COPIER, "project/{{_copier_conf.answers_file}}.jinja": answers})
        git(other, "add", "-A")
        git(other, "commit", "-q", "-m", tag)
        git(other, "tag", tag)
    git(template.top, "checkout", "-q", "main")
    return other


def edited(project: Project) -> Project:
    """Edit two files as a user would."""
    for name in ("src/page0.txt", "src/page20.txt"):
        project.commit({name: project.read(name).replace("line 80", "line 80, mine")})
    return project


def one_update(folder: Path, copier: str | None, repeats: int) -> None:
    """Time one update with each tool and print medians and ratios."""
    template = versions(folder)
    project = edited(project_of(template, folder / "out", "v0.1.0"))
    python = sys.executable
    tools = {
        "fleet": (project, [python, "-m", "fleet", "update"]),
        "cruft": (project, [python, "-m", "cruft", "update", "--skip-apply-ask"]),
    }
    if copier:
        source = copier_versions(template, folder)
        made = Project(folder / "copier-project")
        copy = ["copy", "-q", "--defaults", "--vcs-ref", "v0.1.0", str(source), str(made.folder)]
        subprocess.run([copier, *copy], check=True)
        git(made.folder, "init", "-q")
        made.commit()
        tools["copier"] = (edited(made), [copier, "update", "-q", "--defaults"])
    times: dict[str, list[float]] = {name: [] for name in tools}
    for turn in range(repeats):
        for name, (origin, command) in tools.items():
            work = Project(folder / f"{name}-{turn}")
            shutil.copytree(origin.folder, work.folder, symlinks=True)
            env = {**os.environ, "PYTHONPATH": str(ROOT)}
            start = time.perf_counter()
            subprocess.run(command, cwd=work.folder, env=env, capture_output=True, check=True)
            times[name].append(time.perf_counter() - start)
            assert "changed by the template" in work.read("src/page0.txt"), name
            assert "line 80, mine" in work.read("src/page0.txt"), name
            shutil.rmtree(work.folder)
    ours = statistics.median(times["fleet"])
    for name, found in times.items():
        middle = statistics.median(found)
        print(f"one update, {name:7} median {middle:5.2f} s, fleet takes {ours / middle:.2f} of it")


def many(folder: Path, counts: list[int], jobs: int) -> None:
    """Time rollouts over growing numbers of repositories, each with answers of its own."""
    template = Template(folder / "template")
    template.version("v0.1.0", {f"src/page{n}.txt": page(n) for n in range(FILES)})
    template.version("v0.2.0", {"src/page0.txt": page(0, True)})
    origin = edited(project_of(template, folder / "out", "v0.1.0"))
    for number in range(max(counts)):
        name = f"project{number}"
        text = origin.read(".cruft.json").replace('"demo"', f'"{name}"')
        origin.commit({".cruft.json": text, "src/page30.txt": page(30).replace("line 9", name)})
        git(folder, "clone", "-q", "--bare", str(origin.folder), f"{name}.git")
    for count in counts:
        entries = [f'[[project]]\nurl = "{folder}/project{n}.git"\n' for n in range(count)]
        (folder / "fleet.toml").write_text("".join(entries))
        # A version of its own for each count: a rollout does nothing twice.
        tag = f"v0.{count + 2}.0"
        template.version(tag, {"count.txt": f"{count}\n"})
        command = [sys.executable, "-m", "fleet", "rollout", "fleet.toml", "--to", tag, "--no-checks"]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        start = time.perf_counter()
        process = subprocess.Popen([*command, "--jobs", str(jobs)], cwd=folder, env=env, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        print(
            f"rollout over {count:3} projects, {jobs} jobs: {seconds:6.1f} s "
            f"({seconds / count:.2f} s each), peak memory {used.ru_maxrss / 1024:.0f} MiB, "
            f"exit {os.waitstatus_to_exitcode(status)}"
        )


def main() -> None:
    """Run both measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copier", help="the copier command, when it is installed")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--projects", type=int, nargs="*", default=[10, 50, 100])
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="speed-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        (folder / "gitconfig").write_text("[user]\n\tname = Someone\n\temail = someone@example.org\n")
        os.environ.update(
            GIT_CONFIG_GLOBAL=str(folder / "gitconfig"), XDG_CACHE_HOME=str(folder / "cache"), HOME=str(folder)
        )
        for part in ("one", "many"):
            (folder / part).mkdir()
        one_update(folder / "one", given.copier, given.repeats)
        if given.projects:
            many(folder / "many", given.projects, given.jobs)
    print(f"peak memory of the children: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
