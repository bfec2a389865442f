"""Write requirements.lock: every package of this environment, with the hash of the file it came from.

Pip is asked what it would install to make this environment once more, without installing it. Rebuild:

    python -m pip install --require-hashes --no-deps -r requirements.lock
    python -m pip install --no-deps --editable .
"""

import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..mistakes import Parser
from ..practices.errors import UserError


def main(arguments: Sequence[str]) -> None:
    """Write the lock file."""
    parser = Parser(prog="lock", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("requirements.lock"))
    parser.add_argument("packages", nargs="*", help="only these, as name==version; default: all that is installed")
    options = parser.parse_args(arguments)
    packages = options.packages or installed(pip("freeze"))
    text = lock(resolve(packages))
    options.output.write_text(text, encoding="utf-8")
    print(f"Written: {options.output}, {len(packages)} packages; its first lines say how to rebuild from it.")


def pip(*arguments: str) -> str:
    """Return what pip prints.

    Raises:
        UserError: Pip failed.
    """
    words = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode:
        raise UserError(f"pip {arguments[0]} failed: {result.stderr.strip().splitlines()[-1]}")
    return result.stdout


def installed(frozen: str) -> list[str]:
    """Return the lines name==version of `pip freeze`; what comes from a folder, as this project does, is left out."""
    return [line for line in frozen.splitlines() if "==" in line and not line.startswith(("-e", "#"))]


def resolve(packages: Sequence[str]) -> list[dict[str, Any]]:
    """Return pip's report of the files that `packages` (name==version) come from."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        options = ("--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--report", str(report))
        pip("install", *options, *packages)
        found: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
        return found


def lock(report: list[dict[str, Any]]) -> str:
    """Return the lock file's text."""
    system = f"{platform.system()} {platform.machine()}"
    about = f"# For Python {platform.python_version()} on {system}; on another system make another."
    lines = [about, *(f"# {line.strip()}" for line in (__doc__ or "").splitlines()[-2:])]
    for one in sorted(report, key=lambda item: str(item["metadata"]["name"]).lower()):
        hashes = one["download_info"]["archive_info"]["hashes"]
        name = f"{one['metadata']['name']}=={one['metadata']['version']}"
        lines.append(" ".join([name, *(f"--hash={kind}:{value}" for kind, value in hashes.items())]))
    return "\n".join(lines) + "\n"
