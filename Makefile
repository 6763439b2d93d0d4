# make demo       see it work (digits, four parties, about a minute after installation)
# make test       format, lint, types, tests
# make test-cpus  the tests that train, as older processors and two threads would run them
# make install    .venv with pinned versions; does nothing when it is up to date
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1

.PHONY: install demo test test-cpus bench faults docs results reproduce-quick wheel clean

install: .venv/installed

# Every file is checked against its hash. Where the package index has no CPU build of PyTorch for this Python, the
# default build is taken; its own packages (CUDA) are then the only ones without a hash.
REQUIREMENTS := requirements.txt requirements-dev.txt
HASHED := $(PIP) install --no-compile --no-deps --require-hashes
TORCH := $(shell sed -n 's/^torch==\([0-9.]*\).*/\1/p' requirements-torch.txt)
.venv/installed: $(REQUIREMENTS) requirements-torch.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 install"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "this Python cannot make virtual environments: apt install python3-venv"; exit 1; }
	@echo "installing the pinned packages of $(REQUIREMENTS) into .venv (some minutes the first time)"
	$(PYTHON) -m venv .venv
	$(HASHED) $(addprefix -r ,$(REQUIREMENTS))
	$(HASHED) -r requirements-torch.txt 2>.venv/torch.log || { \
	  if grep -q "DO NOT MATCH THE HASHES" .venv/torch.log; then cat .venv/torch.log; exit 1; fi; \
	  echo "no CPU build of PyTorch found: installing the default build"; $(PIP) install --no-compile torch==$(TORCH); }
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

demo: install
	$(BIN)/protoevfl demo

test: install
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadgroup

# PyTorch, oneDNN and MKL take the code of an older processor: without AVX, then with AVX2 and two threads. What a newer
# one would do, `make test` has done.
TRAINS := $(BIN)/pytest -n 2 --dist loadgroup -m trains
test-cpus: install
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE $(TRAINS)
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2 OMP_NUM_THREADS=2 MKL_NUM_THREADS=2 OMP_WAIT_POLICY=passive $(TRAINS)

# Time and memory on this machine; docs/performance.md and docs/notes/speed.md have what was measured.
bench: install
	$(BIN)/python benchmarks/run.py

# The whole campaign of broken processes and networks, about two hours; a few of its cases are part of `make test`. It
# passes over what ended well before (results/faults.jsonl): move that file away to begin anew.
faults: install
	$(BIN)/python -m tests.faults.campaign
	$(BIN)/python -m tests.faults.figures --fill docs/deployment.md

reproduce-quick: install
	$(BIN)/protoevfl reproduce all --quick --workers 2

# The pages of results with their figures and CSV files, from the records in results/.
results: install
	$(BIN)/protoevfl reproduce all --no-run --no-render --out out/results --fill docs/results.md \
	  --merge results/every_label_h200.jsonl.gz --merge results/h200.jsonl.gz --merge results/seeds_5_to_14_h200.jsonl.gz

docs: install
	$(BIN)/mkdocs build --strict

wheel: install
	$(BIN)/python -m build --wheel --no-isolation

clean:
	rm -rf .venv build dist site src/*.egg-info
