# `make test` and `make demo` need only python3 (3.11 or newer) and pip on an x86-64 Linux.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
KERNELS_VENV ?= .venv-kernels

# A working directory on sys.path would let kernels/ shadow the Hugging Face `kernels` package.
export PYTHONSAFEPATH = 1
export OMP_NUM_THREADS ?= 1

.PHONY: venv venv-kernels lint test test-kernels demo clean

venv:
	@$(PYTHON) spc_sglang/adapter/cpu/environment.py $(VENV)

venv-kernels: venv
	@$(PYTHON) spc_sglang/adapter/cpu/environment.py $(VENV) --kernels $(KERNELS_VENV)

lint: venv
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint test-kernels
	$(BIN)/pytest -n 2 --dist loadfile $(PYTEST_ARGS)

# Triton's interpreter and compiler; no GPU needed, and used where there is one
test-kernels: venv-kernels
	$(KERNELS_VENV)/bin/python -m pytest tests/kernels_triton -n 2 --dist loadfile $(PYTEST_ARGS)

# run from the checkout on purpose: examples/ is not installed
demo: venv
	PYTHONPATH=$(CURDIR) $(BIN)/python -m examples.demo

clean:
	rm -rf $(VENV) $(KERNELS_VENV) .demo .cache .pytest_cache .ruff_cache .mypy_cache .hypothesis build *.egg-info
