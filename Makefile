# Each target makes .venv and installs what it needs; the machine has to have Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --editable

.PHONY: help train test test-deep fuzz lint format bench docs clean

help:
	@echo "make train      install what the example needs and train on scikit-learn's digits"
	@echo "make test       install what the tests need and run them"
	@echo "make test-deep  the tests in their long form"
	@echo "make fuzz       random programs against numpy (SECONDS=600); stops at the first failure"
	@echo "make lint       format, lint and type checks; make format mends what can be mended"
	@echo "make bench      measure tinyfn beside its peers (some minutes)"
	@echo "make docs       build the site, in the folder site"
	@echo "make clean      remove .venv and what the tools leave behind"

$(RUN):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "tinyfn needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version 2>&1);" \
	    "name another: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# one stamp an extra; a changed pyproject.toml installs anew
$(VENV)/.extra-%: pyproject.toml | $(RUN)
	$(INSTALL) '.[$*]'
	@touch $@

train: $(VENV)/.extra-examples
	$(RUN) examples/train_digits.py

test: $(VENV)/.extra-dev
	$(RUN) -m pytest -q -n auto

test-deep: $(VENV)/.extra-dev
	$(RUN) -m pytest -q -n auto -m "deep or not deep"

SECONDS ?= 600
fuzz: $(VENV)/.extra-dev
	$(RUN) -m tinyfn.testing fuzz --seconds $(SECONDS) --seed $$(date +%s) --out tests/property

lint: $(VENV)/.extra-dev
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy

format: $(VENV)/.extra-dev
	$(RUN) -m ruff format .
	$(RUN) -m ruff check --fix .

bench: $(VENV)/.extra-bench
	$(RUN) benchmarks/run.py --json figures.json --plot figures.png

docs: $(VENV)/.extra-docs
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
