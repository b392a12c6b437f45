# Every target sets itself up in .venv; a second call reuses it.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: run test test-cluster lint bench same-bits figures reproduce-quick clean

FIG ?= 1 2 3 4 5 6

run: $(READY) ## FedPNS against FedAvg on the paper's synthetic data, 5 seeds, on Ray: verdict, table, page
	$(BIN)/fedpns compare --strategies fedpns,fedavg --rounds 60 --seeds 1-5 --out runs/quickstart

test: lint ## all tests, two files at a time
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder $(TESTS)

test-cluster: $(READY) ## a cluster of three hosts on this machine, from `ray up` to `ray down` (needs root; 5 minutes)
	$(BIN)/python -m pytest -m cluster

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY) ## speed, as ratios measured in one run
	$(BIN)/python -m benchmarks.optimal_aggregation
	$(BIN)/python -m benchmarks.runtime
	$(BIN)/python -m benchmarks.study
	$(BIN)/python -m benchmarks.cluster

same-bits: $(READY) ## whether this tree gives the bits of commit BASE, side by side (ONLY=fedpns,fedavg MODELS=mlr LAYOUTS=in-process for less; 24 minutes on 2 busy cores)
	@$(BIN)/python -m benchmarks.same_bits --base "$(BASE)" --only "$(ONLY)" --models "$(MODELS)" --layouts "$(LAYOUTS)"

figures: $(READY) ## the paper's figures into runs/figN (FIG="1 3" for some; some 5 hours on 2 cores for all): resumable
	for n in $(FIG); do $(BIN)/fedpns study tune/fig$$n.yaml --out runs/fig$$n $(ONLY) || exit; done

reproduce-quick: $(READY) ## the paper's numbers for MNIST, sigma 0.2, rho 1 (a quarter of an hour on 2 cores)
	$(BIN)/python -m pytest -m reproduction -s

$(READY): requirements.txt pyproject.toml
	@echo "setting up .venv (once; a few minutes)"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

clean:
	rm -rf .venv runs .same-bits
