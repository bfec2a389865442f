"""Fixtures that render the template."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cookiecutter.main import cookiecutter
from rendering import TEMPLATE


@pytest.fixture(scope="session")
def no_user_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cookiecutter configuration that keeps this user's own out of the tests."""
    folder = tmp_path_factory.mktemp("cookiecutter")
    path = folder / "config.yaml"
    path.write_text(f"cookiecutters_dir: {folder}/templates\nreplay_dir: {folder}/replay\n")
    return path


@pytest.fixture(scope="session")
def render(no_user_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Render the template with some answers, and return the project's folder."""

    def make(into: Path | None = None, **answers: str) -> Path:
        folder = into or tmp_path_factory.mktemp("render")
        options = {"config_file": str(no_user_config), "output_dir": str(folder), "no_input": True}
        return Path(cookiecutter(str(TEMPLATE), extra_context=answers, **options))

    return make


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slow ones: a long one at the end would leave a core idle."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
