# Noonward: `make demo` runs the main job, `make test` runs everything a release must pass; both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 3
# Version of torch in tests; another build: make test TORCH="torch --index-url https://download.pytorch.org/whl/cpu"
TORCH ?= torch==2.13.0
# Files are compiled when they are first imported: most of what these packages hold never is
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

.PHONY: demo test lint types docs wheel format clean

$(VENV)/.demo: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "noonward needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(INSTALL) $(TORCH)
	$(INSTALL) --editable '.[dev]'
	touch $@

# Bytecode of what is imported is written in any case: every later start reads it.
demo: export PYTHONDONTWRITEBYTECODE :=
demo: $(VENV)/.demo
	$(BIN)/noonward compile fine-tuning
	$(BIN)/noonward compare fine-tuning

# Three workers keep two cores busy, since some tests wait for a cluster, a browser or a process. They share the cores:
# libraries that started a thread per core in each of them would wait for one another. Both loops of the engine are
# compiled first, each once, and the tests are: workers that begin together would all compile what they all need.
test: export OMP_NUM_THREADS := 1
test: export OPENBLAS_NUM_THREADS := 1
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.dev
	$(BIN)/noonward compile fine-tuning & { $(BIN)/noonward compile --training dvfs-training; \
	    $(BIN)/python -m pytest --collect-only --quiet > /dev/null; }; wait
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict --quiet

# The wheel is built and works in an environment that holds nothing else.
wheel: $(VENV)/.dev
	rm -rf dist build/empty
	$(BIN)/python -m build --wheel
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build/empty && bin/noonward --help > /dev/null
	cd build/empty && bin/noonward compare tiny -n 2 --out runs

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) runs site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
