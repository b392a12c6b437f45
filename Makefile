# Every target sets up .venv first; later calls reuse it.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: run test test-cluster docs lint audit bench bench-check gpu-check chaos fuzz conformance same-bits figures reproduction \
	reproduce-quick clean

FIG ?= 1 2 3 4 5 6

run: $(READY) ## FedPNS against FedAvg on the paper's synthetic data, 5 seeds, on Ray: verdict, table, page
	$(BIN)/fedpns compare --strategies fedpns,fedavg --rounds 60 --seeds 1-5 --out runs/quickstart

test: lint ## lint and all tests, two files at a time
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder --durations=25 $(TESTS)

test-cluster: $(READY) ## two clusters of hosts on this machine, from `ray up` to their end (needs root; 6 minutes)
	$(BIN)/python -m pytest -m cluster --numprocesses=2 --dist=loadfile

lint: $(READY) ## style, types, and the page's script
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/oxfmt --check fedpns_ray/reporting/page*.js
	@mkdir -p .lint && cat fedpns_ray/reporting/page*.js >.lint/page.js
	$(BIN)/oxlint --deny-warnings --no-ignore .lint/page.js # one script, as on the page: names are known across its files

PURE := tests/conformance $(patsubst %,tests/strategies/test_%.py,fedprox scaffold selections server state) \
	$(patsubst %,tests/data/test_%.py,femnist file kinds_of_nodes partitions) \
	$(patsubst %,tests/test_%.py,availability buffers clipping compression config devices loop models node_states optimizers \
	statistics tasks training) $(patsubst %,tests/report/test_%.py,report_card verdict)

coverage: $(READY) ## how much of core, strategies and data is run by tests without Ray and browser; fails below the floor (2 minutes)
	$(BIN)/coverage run -m pytest $(PURE) --ignore tests/conformance/test_mutation.py --ignore tests/conformance/test_invariants.py \
	  -k "not say_what_it_cost and not two_actors"
	$(BIN)/coverage report

# uv reads every marker and looks for wheels on Linux; pip would look only for this Python.
pins: ## whether all pinned packages can be installed on Python 3.10 to 3.13 (by uv, in an environment of its own)
	$(PYTHON) -m venv .audit
	.audit/bin/pip install --quiet --disable-pip-version-check uv
	for version in 3.10 3.11 3.12 3.13; do echo "Python $$version" && .audit/bin/uv pip compile --quiet --only-binary :all: \
	  --python-platform linux --python-version $$version --output-file .audit/$$version.txt requirements-dev.txt || exit; done

docs: $(READY) ## the documentation as a site, in docs/_site/index.html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_site

# Needs a database of vulnerabilities (the package index's JSON or osv.dev), which package mirrors often lack; CI does not need it.
audit: ## known vulnerabilities in the pinned packages, by pip-audit (in an environment of its own)
	$(PYTHON) -m venv .audit
	.audit/bin/pip install --quiet --disable-pip-version-check pip-audit
	.audit/bin/pip-audit --requirement requirements-dev.txt --no-deps --disable-pip

bench: $(READY) ## speed, as ratios measured in one run (for less: ONLY="flower limit"; WRITE=1 keeps them; 15 minutes)
	@$(BIN)/python -m benchmarks $(ONLY) $(if $(WRITE),--write)

bench-check: $(READY) ## whether a ratio is worse than the one kept in benchmarks/ratios.json (for less: ONLY="flower limit")
	@$(BIN)/python -m benchmarks --check $(ONLY)

gpu-check: $(READY) ## with a GPU: correct, deterministic, few launches, fast, in fractions; a page for an issue (5 minutes)
	@$(BIN)/python -m benchmarks.gpu.check

chaos: $(READY) ## 200 faults at random moments of runs and studies: what survived, resumed, or was lost (needs root; hours)
	$(BIN)/python -m tests.chaos --faults $(or $(FAULTS),200) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only "$(ONLY)")

fuzz: $(READY) ## 5,000 commands, files and folders that nobody would write: each works or ends with one line (10 minutes)
	FUZZ_CASES=5200 FUZZ_WITHIN=20 $(BIN)/python -m pytest -s -p no:cacheprovider tests/fuzz

conformance: $(READY) ## every strategy against the invariants, every mutant of every rule (NAME="pns oort" for some), the pages
	$(BIN)/fedpns conformance
	$(BIN)/python -m tests.conformance.mutation $(NAME)
	$(BIN)/python docs/strategies.py

# All cases take 24 minutes on 2 busy cores.
same-bits: $(READY) ## whether this tree gives the same bits as commit BASE (for less: ONLY=fedpns,fedavg MODELS=mlr LAYOUTS=in-process)
	@$(BIN)/python -m benchmarks.same_bits --base "$(BASE)" --only "$(ONLY)" --models "$(MODELS)" --layouts "$(LAYOUTS)"

figures: $(READY) ## the paper's figures into runs/figN, from kept data in seconds (FIG="1 3" for some; RERUN=1 runs them: 5 hours on 2 cores)
	for n in $(FIG); do \
	  if [ -z "$(RERUN)$(ONLY)" ] && [ -e docs/reproduction/fig$$n.parquet ]; then $(BIN)/python docs/reproduce.py draw $$n runs/fig$$n; \
	  else $(BIN)/fedpns study tune/fig$$n.yaml --out runs/fig$$n $(ONLY); fi || exit; done

reproduction: $(READY) ## docs/reproduction.md and its pictures, from the data in docs/reproduction
	$(BIN)/python docs/reproduce.py write

reproduce-quick: $(READY) ## the paper's numbers for MNIST, sigma 0.2, rho 1 (about 15 minutes on 2 cores)
	$(BIN)/python -m pytest -m reproduction -s

.PHONY: help setup pins coverage

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## the environment .venv, which every other target sets up as well

$(READY): fedpns_ray/requirements.txt requirements-dev.txt pyproject.toml
	@echo "setting up .venv (once; takes a few minutes)"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

clean: ## remove everything that was made here, runs included
	rm -rf .venv .audit .lint runs .same-bits .bench
