"""Refuse answers that cannot work, each with what to type instead; cookiecutter then removes the folder."""

import json
import keyword
import re
import sys
import unicodedata
from collections.abc import Iterator

ANSWERS = json.loads(r"""{{ cookiecutter | jsonify }}""")

# What the generated code imports: a package of the same name would hide it.
DEPENDENCIES = frozenset(
    "cruft fleet jsonargparse lightning matplotlib mypy numpy onnx onnxruntime onnxscript pil pip pytest "
    "pytorch_lightning ruff setuptools sklearn tensorboard torch torchmetrics torchvision tqdm wandb yaml".split()
)
# Unicode's control, format, surrogate, private, line and paragraph separator characters; the two
# joiners that some scripts need are let through.
INVISIBLE = frozenset(["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"])
FOLDERS = frozenset("configs data docs launch runs src tests".split())


def problems(answers: dict[str, str]) -> Iterator[str]:
    """Yield a sentence for each answer that cannot work."""
    project, package = answers["project"], answers["package"]
    if not re.fullmatch(r"[A-Za-z0-9]+([_-][A-Za-z0-9]+)*", project) or len(project) > 40:
        yield (
            f"project must be 1 to 40 letters (a to z) and digits, joined by single - or _, but is {project!r}; "
            f"type for example {suggestion(project, '-')}."
        )
    elif project.lower() in ("con", "prn", "aux", "nul"):
        yield f"project must not be {project!r}, which Windows keeps for a device; type for example {project}-model."
    yield from package_problems(package)
    for name in ("description", "author"):
        text = answers[name]
        if not text.strip():
            yield f"{name} must say something, but is empty; type {EXAMPLES[name]}."
        elif len(text) > 200:
            yield f"{name} must be at most 200 characters, but has {len(text)}; type a shorter one."
        elif any(unicodedata.category(c) in INVISIBLE and c not in "\n\t\u200c\u200d" for c in text):
            yield f"{name} holds a control or invisible character ({text!r}); type it again without."


EXAMPLES = {"description": "one line about the project", "author": "your name or your company's"}


def package_problems(package: str) -> Iterator[str]:
    """Yield a sentence when `package` cannot be imported or would hide another package."""
    other = suggestion(package, "_")
    if not re.fullmatch(r"[a-z]+[a-z0-9_]*", package) or len(package) > 32:
        yield (
            f"package must be 1 to 32 of a to z, digits and _, with a letter first, but is {package!r}; "
            f"type for example {other}."
        )
    elif keyword.iskeyword(package) or keyword.issoftkeyword(package):
        yield f"package must not be {package!r}, a keyword of Python; type for example {package}_model."
    elif package in sys.stdlib_module_names:
        yield f"package must not be {package!r}, a module of Python itself; type for example {package}_model."
    elif package in DEPENDENCIES:
        yield f"package must not be {package!r}, which the project depends on; type for example {package}_model."
    elif package in FOLDERS:
        yield f"package must not be {package!r}, a folder of the project; type for example {package}_model."


def suggestion(name: str, joint: str) -> str:
    """Return the nearest name to `name` that would be accepted."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    while words and words[0][0].isdigit():
        words = words[1:] or [words[0].lstrip("0123456789") + words[0].rstrip("abcdefghijklmnopqrstuvwxyz")]
        if not words[0] or words[0].isdigit():
            words = []
    name = joint.join(words)[:30].strip(joint)
    return name if name and not keyword.iskeyword(name) else f"digit{joint}reader"


if __name__ == "__main__":
    found = list(problems(ANSWERS))
    for sentence in found:
        print(sentence, file=sys.stderr)
    sys.exit(1 if found else 0)
