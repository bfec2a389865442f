"""Remove the files of options that were not chosen, write the state file, say what to do next."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ANSWERS = json.loads(r"""{{ cookiecutter | jsonify }}""")

# Files that more than one task has.
FINE_TUNING = [
    "src/{package}/practices/pretrained.py",
    "src/{package}/techniques/finetuning.py",
    "tests/test_pretrained.py",
    "tests/test_finetuning.py",
    "configs/finetune_head.yaml",
    "configs/finetune_unfreeze.yaml",
]
COUNTING = ["src/{package}/practices/counting.py", "tests/test_counting.py"]
DEFORMABLE = ["src/{package}/techniques/deformable.py", "tests/test_deformable.py"]
CLASSIFICATION = [
    "src/{package}/workbench/report/classification.py",
    "src/{package}/practices/focal.py",
    "src/{package}/techniques/distillation.py",
    "tests/workbench/test_report_classification.py",
    "tests/test_focal.py",
    "tests/test_distillation.py",
    "configs/distill.yaml",
]

# Which files belong to which answer. An option adds or removes whole files and never branches
# inside one, so adding an option is a line here.
FILES_OF = {
    "task": {
        "image_classification": [
            "src/{package}/image_classification",
            "tests/test_image_classification.py",
            "src/{package}/reading/images.py",
            "src/{package}/reading/splits.py",
            "configs/default.yaml",
            "src/{package}/techniques/image_classification_blocks.py",
            *DEFORMABLE,
            "configs/network/blocks.image_classification.yaml",
            "configs/network/resnet18.yaml",
            "configs/network/swin.yaml",
            "configs/network/vit.yaml",
            *FINE_TUNING,
            *CLASSIFICATION,
            *COUNTING,
            "src/{package}/techniques/mixing.py",
            "tests/test_mixing.py",
            "configs/mixup.yaml",
        ],
        "semantic_segmentation": [
            "src/{package}/semantic_segmentation",
            "src/{package}/workbench/report/segmentation.py",
            "tests/workbench/test_report_segmentation.py",
            "tests/test_semantic_segmentation.py",
            "src/{package}/reading/images.py",
            *COUNTING,
            "src/{package}/practices/losses.py",
            "src/{package}/reading/masks.py",
            "src/{package}/reading/splits.py",
            "src/{package}/reading/tiling.py",
            "configs/default.semantic_segmentation.yaml",
            "src/{package}/techniques/semantic_segmentation_blocks.py",
            *DEFORMABLE,
            "configs/network/blocks.semantic_segmentation.yaml",
            "configs/network/deeplabv3_resnet50.yaml",
            "configs/network/fcn_resnet50.yaml",
            "configs/network/lraspp_mobilenet_v3_large.yaml",
            *FINE_TUNING,
            "src/{package}/practices/focal.py",
        ],
        "tabular_regression": [
            "src/{package}/tabular_regression",
            "src/{package}/workbench/report/regression.py",
            "tests/workbench/test_report_regression.py",
            "tests/test_tabular_regression.py",
            "src/{package}/reading/tables.py",
            "configs/default.tabular_regression.yaml",
            "src/{package}/techniques/tabular_regression_blocks.py",
            "configs/network/blocks.tabular_regression.yaml",
            "configs/network/linear.yaml",
            "configs/network/deep.yaml",
        ],
        "text_classification": [
            "src/{package}/text_classification",
            "tests/test_text_classification.py",
            "src/{package}/reading/sequences.py",
            "src/{package}/reading/tables.py",
            "configs/default.text_classification.yaml",
            "src/{package}/techniques/text_classification_blocks.py",
            "configs/network/blocks.text_classification.yaml",
            "configs/network/gru2.yaml",
            "configs/network/transformer.yaml",
            *FINE_TUNING,
            *CLASSIFICATION,
            *COUNTING,
        ],
    },
    "logger": {"wandb": ["configs/search/wandb.yaml"], "tensorboard": [], "csv": []},
    "ci": {"github": [".github"], "gitlab": [".gitlab-ci.yml"], "none": []},
}

# What a chosen option's file is called in the project.
RENAMES = {
    "configs/default.{task}.yaml": "configs/default.yaml",
    "configs/network/blocks.{task}.yaml": "configs/network/blocks.yaml",
}


def remove_unchosen(answers: dict[str, str], project: Path) -> None:
    """Delete the files that belong to options, but not to the chosen one."""
    for question, options in FILES_OF.items():
        chosen = options[answers[question]]
        for path in {path for paths in options.values() for path in paths} - set(chosen):
            target = project / path.format(**answers)
            shutil.rmtree(target) if target.is_dir() else target.unlink()


def rename_chosen(answers: dict[str, str], project: Path) -> None:
    """Give the files of the chosen options the names that the project knows."""
    for old, new in RENAMES.items():
        source = project / old.format(**answers)
        if source.exists():
            source.replace(project / new)


def template_folder(repo: str) -> Path | None:
    """Return the template's folder on this machine, or None where it is not known.

    Cookiecutter gives a local template's path as it was typed, relative to where it was started,
    while hooks run inside the new project: the starting folder is tried by the shell's PWD.
    """
    starts = [os.environ.get("PWD", ""), ANSWERS["_output_dir"]]
    candidates = [Path(start, repo) for start in starts if start] if repo else []
    return next((c.resolve() for c in candidates if (c / "cookiecutter.json").is_file()), None)


def git(folder: Path, *arguments: str) -> str | None:
    """Return what a reading git command prints, or None when it fails."""
    try:
        result = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def state(answers: dict[str, str]) -> dict[str, object]:
    """Return what an update needs to know: where the project came from and with which answers."""
    folder = template_folder(answers.get("_repo_dir", ""))
    # Only a repository whose root is the template itself, or holds it, is the template's own.
    top = git(folder, "rev-parse", "--show-toplevel") if folder else None
    commit = git(folder, "rev-parse", "HEAD") if folder and top else None
    url = git(folder, "remote", "get-url", "origin") if folder and commit else None
    url = re.sub(r"^(https?://)[^/\s]*@", r"\1", url) if url else url  # a token must not reach the state file
    inside = folder.relative_to(Path(top).resolve()).as_posix() if folder and top else "."
    kept = {k: v for k, v in answers.items() if not k.startswith("_")}
    source = url or (str(folder) if folder else answers["_template"])
    return {
        "template": source,
        "commit": commit,
        "checkout": None,
        "context": {"cookiecutter": {**kept, "_template": source}},
        "directory": None if inside == "." else inside,
        "skip": [],
        "tag": git(folder, "describe", "--tags", "--exact-match") if folder and commit else None,
        "dirty": bool(folder and commit and git(folder, "status", "--porcelain")),
    }


def next_steps(answers: dict[str, str]) -> str:
    """Return the words that end the generation."""
    return (
        f"\n{answers['project']} is ready. Next:\n\n"
        f"    cd {answers['project']}\n"
        "    make setup        an environment of its own, in .venv\n"
        "    make train        trains on the demo data and exports to ONNX\n"
        "    make todo         what to make yours, in order\n"
    )


def main() -> None:
    """Finish the project in the current folder."""
    project = Path.cwd()
    remove_unchosen(ANSWERS, project)
    rename_chosen(ANSWERS, project)
    # Under cruft the context carries the commit, and cruft writes the state file itself.
    if "_commit" not in ANSWERS:
        text = json.dumps(state(ANSWERS), indent=2, ensure_ascii=False)
        (project / ".cruft.json").write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(next_steps(ANSWERS))


if __name__ == "__main__":
    main()
