# PYTHON=... uses another environment than .venv, which the first target that needs it makes.
PYTHON ?= .venv/bin/python
READY := $(if $(filter .venv/bin/python,$(PYTHON)),.venv/.done)
export OMP_NUM_THREADS := 1

.PHONY: help demo test test-fast check fix bench sabotage clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 12

.venv/.done: pyproject.toml
	python3 -m venv .venv
	.venv/bin/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(READY)  ## generate with the default answers into demo/, train, test, export
	$(PYTHON) -m cookiecutter . --no-input --overwrite-if-exists --output-dir demo
	$(MAKE) -C demo/digit-reader train evaluate todo PYTHON=$(abspath $(PYTHON))
	@echo
	@echo "The project is in demo/digit-reader, its run in demo/digit-reader/runs/latest, the ONNX model there too."
	@echo "Next: cd demo/digit-reader, then follow its README.md; or generate your own as README.md here says."

test: $(READY) check  ## all tests
	$(PYTHON) -m pytest -n 2 --dist worksteal

test-fast: $(READY)  ## the tests for every day, in less than five minutes
	$(PYTHON) -m pytest -n 2 --dist worksteal -m "not slow"

check: $(READY)  ## lint, format and types, of the template where it stands and of the fleet tools
	$(PYTHON) -m ruff check --config ruff.toml .
	$(PYTHON) -m ruff format --config ruff.toml --check .
	$(PYTHON) -m mypy fleet
	$(PYTHON) -m mypy -p template_package

fix: $(READY)  ## lint and format what can be mended
	$(PYTHON) -m ruff check --config ruff.toml --fix .
	$(PYTHON) -m ruff format --config ruff.toml .

bench: $(READY)  ## the measurements beside which README.md's figures stand
	for script in bench/[a-z]*.py; do $(PYTHON) $$script || exit 1; done

sabotage: $(READY)  ## take each practice out of a render and see the generated tests notice
	PYTHONPATH=tests $(PYTHON) -m sabotage

clean:  ## remove what the targets made
	rm -rf .venv demo .pytest_cache .ruff_cache .mypy_cache
