# Every target sets up .venv first; later calls reuse it.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: run test test-cluster lint audit bench chaos fuzz same-bits figures reproduce-quick clean

FIG ?= 1 2 3 4 5 6

run: $(READY) ## FedPNS against FedAvg on the paper's synthetic data, 5 seeds, on Ray: verdict, table, page
	$(BIN)/fedpns compare --strategies fedpns,fedavg --rounds 60 --seeds 1-5 --out runs/quickstart

test: lint ## lint and all tests, two files at a time
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder $(TESTS)

test-cluster: $(READY) ## a cluster of three hosts on this machine, from `ray up` to `ray down` (needs root; 5 minutes)
	$(BIN)/python -m pytest -m cluster

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Needs a database of vulnerabilities (the package index's JSON or osv.dev), which package mirrors often lack; CI does not need it.
audit: ## known vulnerabilities in the pinned packages, by pip-audit (in an environment of its own)
	$(PYTHON) -m venv .audit
	.audit/bin/pip install --quiet --disable-pip-version-check pip-audit
	.audit/bin/pip-audit --requirement requirements.txt --no-deps --disable-pip

bench: $(READY) ## speed, as ratios measured in one run
	$(BIN)/python -m benchmarks.optimal_aggregation
	$(BIN)/python -m benchmarks.runtime
	$(BIN)/python -m benchmarks.study
	$(BIN)/python -m benchmarks.cluster

chaos: $(READY) ## 200 faults at random moments of runs and studies: what survived, resumed, or was lost (needs root; hours)
	$(BIN)/python -m tests.chaos --faults $(or $(FAULTS),200) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only "$(ONLY)")

fuzz: $(READY) ## 5,000 commands, files and folders that nobody would write: each works or ends with one line (10 minutes)
	FUZZ_CASES=5200 $(BIN)/python -m pytest -s -p no:cacheprovider tests/fuzz

# All cases take 24 minutes on 2 busy cores.
same-bits: $(READY) ## whether this tree gives the same bits as commit BASE (for less: ONLY=fedpns,fedavg MODELS=mlr LAYOUTS=in-process)
	@$(BIN)/python -m benchmarks.same_bits --base "$(BASE)" --only "$(ONLY)" --models "$(MODELS)" --layouts "$(LAYOUTS)"

figures: $(READY) ## the paper's figures into runs/figN, resumable (FIG="1 3" for some; all take about 5 hours on 2 cores)
	for n in $(FIG); do $(BIN)/fedpns study tune/fig$$n.yaml --out runs/fig$$n $(ONLY) || exit; done

reproduce-quick: $(READY) ## the paper's numbers for MNIST, sigma 0.2, rho 1 (about 15 minutes on 2 cores)
	$(BIN)/python -m pytest -m reproduction -s

$(READY): requirements.txt pyproject.toml
	@echo "setting up .venv (once; takes a few minutes)"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

clean:
	rm -rf .venv .audit runs .same-bits
