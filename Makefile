# Every target sets itself up in .venv; a second call reuses it.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: run test lint bench reproduce-quick clean

run: $(READY) ## FedPNS against FedAvg on the paper's synthetic data: table, plot, run folders
	$(BIN)/fedpns compare --strategies fedpns,fedavg --rounds 100 --out runs/quickstart

test: lint ## all tests
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY) ## speed, as ratios measured in one run
	$(BIN)/python -m benchmarks.optimal_aggregation
	$(BIN)/python -m benchmarks.runtime

reproduce-quick: $(READY) ## the paper's numbers for MNIST, sigma 0.2, rho 1 (a quarter of an hour on 2 cores)
	$(BIN)/python -m pytest -m reproduction -s

$(READY): requirements.txt pyproject.toml
	@echo "setting up .venv (once; a few minutes)"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

clean:
	rm -rf .venv runs
