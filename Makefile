# `make test` and `make demo` need only python3 (3.11 or newer) and pip on an x86-64 Linux.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# A working directory on sys.path would let kernels/ shadow the Hugging Face `kernels` package.
export PYTHONSAFEPATH = 1
export OMP_NUM_THREADS ?= 1

.PHONY: venv lint test demo clean

venv:
	@$(PYTHON) spc_sglang/adapter/cpu/environment.py $(VENV)

lint: venv
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n 2 --dist loadfile $(PYTEST_ARGS)

# run from the checkout on purpose: examples/ is not installed
demo: venv
	PYTHONPATH=$(CURDIR) $(BIN)/python -m examples.demo

clean:
	rm -rf $(VENV) .demo .cache .pytest_cache .ruff_cache .mypy_cache .hypothesis build *.egg-info
