# Sets everything up from a fresh clone; needs Python 3.10 to 3.13 and a network, once.
#
#   make demo    diagnose the embedded example: on the terminal, and in tfdiag-report.html and .json
#   make test    run the tests
#   make lint    run the linters
#   make readme  diagnose the example, and show the outcome in README.md
#   make dev     only install what the tests and linters need
#   make clean   forget the environment and the reports
#
# PYTHON=... names the interpreter to use; after a change of mind, `make clean` comes first.

PYTHON ?=
candidates := $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11 python3.10)
# TensorFlow has no wheels for newer interpreters.
supported := (3, 10) <= sys.version_info[:2] <= (3, 13)

venv := .venv
python := $(venv)/bin/python
pip := $(python) -m pip --disable-pip-version-check --quiet

.PHONY: demo test lint readme dev clean

demo: $(venv)/.demo
	@$(python) examples/slow_input.py

test: $(venv)/.dev
	@$(python) -m pytest

lint: $(venv)/.dev
	@.ci/run lint

readme: $(venv)/.dev demo
	@$(python) tools/refresh_readme.py

dev: $(venv)/.dev
	@:

clean:
	rm -rf $(venv) tfdiag-report.*

# The stamps are touched last: an installation that was interrupted begins again.

$(venv)/.demo: pyproject.toml $(venv)/.created
	@echo "Installing tfdiag and TensorFlow for the CPU into $(venv): a few minutes, once"
	@$(pip) install --editable '.[cpu]'
	@touch $@

# tf_keras asks for the package `tensorflow`, which carries the same files as tensorflow-cpu and
# would overwrite them; what else it needs is there already.
$(venv)/.dev: pyproject.toml Makefile $(venv)/.created
	@echo "Installing tfdiag with its tests and linters into $(venv): a few minutes, once"
	@$(pip) install --editable '.[dev]'
	@$(pip) install --no-deps 'tf_keras==2.21.*'
	@touch $@

$(venv)/.created:
	@for candidate in $(candidates); do \
		if "$$candidate" -c 'import sys; sys.exit(not $(supported))' 2>/dev/null; then \
			"$$candidate" -m venv --clear $(venv) && touch $@; exit; \
		fi; \
	done; \
	echo "tfdiag's examples and tests need Python 3.10 to 3.13: TensorFlow has no wheels for others." >&2; \
	for candidate in $(candidates); do \
		"$$candidate" --version 2>/dev/null | sed "s|^|  $$candidate is |" >&2; \
	done; \
	echo "Install one of them, or name it: make PYTHON=/path/to/python3.12 ..." >&2; \
	exit 1
