# make dev          a .venv with coredispatch, compiled where possible, and its plugins
# make demo         train on the handwritten digits (options: make demo ARGS="--amp --plot out.png")
# make test         all tests; those of the compiled modules, where there are any, once more interpreted
# make test-third-party  the backends over JAX, PyTorch, array_api_strict and OpenCL; installs these
# make test-machines  the tests that depend on rounding, as on machines with another BLAS or processor
# make check        format, lint, types, import contract, docs
# make bench        calls, kernels and training steps beside PyTorch, where it is installed; writes
#                   docs/benchmarks.md and its chart (options: make bench ARGS="--threads 1,2 --quick")
# make conformance  the conformance suite: a report per plugin in build/conformance
# make gpu-test     tests of plugins/cuda_cupy, on a machine with a CUDA device
# make gpu          there: its tests on the device, conformance, the benchmark, in ten minutes; one of
#                   them alone: make gpu-tests, gpu-conformance, gpu-bench
# make clean        remove what was built;  make distclean: the .venv as well
#
# Variables: PYTHON (the interpreter .venv is made from), VENV, ARGS, and TORCH: what pip is asked for
# so that the comparisons with PyTorch run (empty: nothing).

find_python = for p in python3 python3.13 python3.12 python3.11 python; do \
    $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done
PYTHON ?= $(shell $(find_python))
VENV ?= .venv
ARGS ?=
# The build for the CPU has a version of its own on Linux, so that pip takes it from wherever it is
# configured to look (pip config, PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL), or takes nothing: the build
# that comes without that label brings several GB of CUDA libraries.
TORCH ?= torch==2.13.0$(if $(filter Linux,$(shell uname -s)),+cpu)
# It compiles the CUDA kernels for the tests, which need no device for that.
NVRTC ?= $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),nvidia-cuda-nvrtc-cu12)

PY := $(VENV)/bin/python
PIP := $(PY) -m pip
# cuda_cupy without CuPy or a GPU is listed, and says why it has no device.
PLUGINS := $(wildcard plugins/cpu_numba plugins/sparse plugins/quant plugins/mpi plugins/cuda_cupy)
# The compiled modules are listed in coredispatch/_compiled.py and nowhere else.
HOT := $(wildcard $(shell sed -n 's,^ *"\(coredispatch/.*\.py\)"\,$$,\1,p' coredispatch/_compiled.py))
CREATED := $(VENV)/.stamp-created
DEPENDENCIES := $(VENV)/.stamp-dependencies
CORE := $(VENV)/.stamp-core
INSTALLED := $(VENV)/.stamp-plugins
ORACLE := $(VENV)/.stamp-torch

# Test workers share the cores; a BLAS that starts a thread per core in each would only fight.
# The timeout ends what hangs, and nothing else: no test asserts how long something takes.
THREADS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
TEST := $(THREADS) $(PY) -m pytest --timeout=1200

.PHONY: dev demo test test-compiled test-interpreted test-third-party test-machines check bench conformance \
    gpu gpu-install gpu-test gpu-tests gpu-conformance gpu-bench clean distclean
.DELETE_ON_ERROR:

dev: $(CORE) $(INSTALLED)
	@$(PY) -m coredispatch info --summary

# Debian ships Python without ensurepip: there pip (22.3 or newer) fills the new environment.
$(CREATED):
	@test -n "$(PYTHON)" || { echo "coredispatch needs Python 3.11 or newer: make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { \
	    rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) && \
	    $(PYTHON) -m pip --python $(PY) install --quiet pip; }
	touch $@

$(DEPENDENCIES): pyproject.toml $(CREATED)
	$(PIP) install --quiet "setuptools>=68" wheel "mypy>=1.15"
	$(PY) -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	    print(*p['dependencies'], *p['optional-dependencies']['dev'], sep='\n')" > $@.txt
	$(PIP) install --quiet --requirement $@.txt
	touch $@

# A hot module that changed is compiled again; the stamp is what keeps extensions from going stale.
# Bytecode is written here, as for any other installation: where PYTHONDONTWRITEBYTECODE is set,
# every process would compile 350 files, which takes twice as long as all the rest of the import.
$(CORE): setup.py coredispatch/_compiled.py coredispatch/_version.py $(HOT) $(DEPENDENCIES)
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	$(PY) -m compileall -q coredispatch
	touch $@

$(INSTALLED): $(DEPENDENCIES) $(addsuffix /pyproject.toml,$(PLUGINS)) | $(CORE)
	$(foreach plugin,$(PLUGINS),$(PIP) install --quiet --no-build-isolation --editable $(plugin) &&) true
	touch $@

# Without PyTorch its recorded answers serve, and the comparisons that need it itself are skipped.
$(ORACLE): | $(DEPENDENCIES)
	@test -z "$(TORCH)" || $(PY) -c "import torch" 2>/dev/null || \
	    $(PIP) install --quiet "$(TORCH)" 2>/dev/null || \
	    echo "pip finds no $(TORCH): the tests compare with PyTorch's recorded answers only"
	@test -z "$(NVRTC)" || $(PIP) install --quiet "$(NVRTC)" 2>/dev/null || \
	    echo "pip finds no $(NVRTC): the tests compile no CUDA kernels"
	@touch $@

demo: dev
	$(PY) examples/digits.py $(ARGS)

test: dev $(ORACLE)
	$(MAKE) --no-print-directory test-compiled
	@if $(PY) -c "import sys, coredispatch._compiled as c; sys.exit(False in c.compiled_modules().values())"; \
	    then $(MAKE) --no-print-directory test-interpreted; \
	    else echo "The tests above ran interpreted: no compiled modules here."; fi

test-compiled: dev $(ORACLE)
	$(TEST) --numprocesses=auto --dist=loadgroup $(ARGS)

# The modules that are compiled elsewhere are those of the registry and of autograd: tests of numbers
# (marked `once`), of several ranks and of CUDA kernels say nothing new about them.
test-interpreted: dev $(ORACLE)
	COREDISPATCH_INTERPRETED=1 COREDISPATCH_COMPARE=recorded \
	    $(TEST) --numprocesses=auto --dist=loadgroup -m "not slow and not once" \
	    --ignore=tests/distributed --ignore=plugins/cuda_cupy $(ARGS)

# In make test those run whose libraries are there; the others are skipped and say so.
test-third-party: dev $(ORACLE)
	$(PY) -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	    print(*p['optional-dependencies']['third-party'], sep='\n')" > $(VENV)/third-party.txt
	$(PIP) install --quiet --requirement $(VENV)/third-party.txt
	$(TEST) -rs tests/integration/test_array_namespaces.py tests/integration/test_opencl_device.py $(ARGS)

# One setting: make test-machines ARGS="openblas-haswell"; what this machine has: ARGS=--list.
test-machines: dev
	$(THREADS) $(PY) tests/machines/run.py --numprocesses=auto --dist=loadgroup $(ARGS)

check: dev
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(TEST) -q tests/unit/test_import_contract.py
	$(TEST) -q tests/unit/test_docs.py

bench: dev
	$(PY) benchmarks/report.py $(ARGS)

# One report per plugin in build/conformance: the plugins loaded, the backend, level and profile.
REPORTS := build/conformance
CERTIFY = echo "== $(4)"; \
    COREDISPATCH_PLUGINS=$(1) $(VENV)/bin/coredispatch conformance run --backend $(2) $(3) \
    --report $(REPORTS)/$(4).html --json $(REPORTS)/$(4).json --badge $(REPORTS)/$(4).svg $(ARGS)

# The example is installed for its own run only: the development environment keeps to the plugins.
conformance: dev
	rm -rf $(REPORTS)
	mkdir -p $(REPORTS)
	mkdir $(REPORTS)/source
	cp -r examples/third_party_backend examples/diagonal_layout $(REPORTS)/source
	$(PIP) install --quiet --no-deps --no-build-isolation --target $(REPORTS)/installed \
	    $(REPORTS)/source/*
	@status=0; \
	    $(call CERTIFY,none,cpu,--level training,numpy) || status=1; \
	    $(call CERTIFY,cpu_numba,cpu,--level training,cpu_numba) || status=1; \
	    export PYTHONPATH=$(REPORTS)/installed; \
	    $(call CERTIFY,flat,flat,--level training,third_party_example) || status=1; \
	    $(call CERTIFY,diagonal,cpu,--profile diagonal,third_party_layout) || status=1; \
	    $(call CERTIFY,diagonal,cpu,--ops-of diagonal,third_party_layout_operators) || status=1; \
	    unset PYTHONPATH; \
	    $(call CERTIFY,sparse,cpu,--profile sparse,sparse) || status=1; \
	    $(call CERTIFY,sparse,cpu,--ops-of sparse,sparse_operators) || status=1; \
	    $(call CERTIFY,quant,cpu,--profile quant,quant) || status=1; \
	    $(call CERTIFY,quant,cpu,--ops-of quant,quant_operators) || status=1; \
	    if $(PY) -c "import sys, coredispatch as cd; sys.exit(not cd.cuda.is_available())"; then \
	        $(call CERTIFY,cuda_cupy,cuda,--level training,cuda_cupy) || status=1; \
	        absent=; \
	    else absent="cuda_cupy: no report, there is no CUDA device here"; fi; \
	    echo; $(VENV)/bin/coredispatch conformance index $(REPORTS) || status=1; \
	    test -z "$$absent" || echo "$$absent"; \
	    echo "reports: $(REPORTS)/index.html"; exit $$status

# Offline: a GPU machine may reach no package index. Everything but coredispatch itself (numpy,
# pluggy, ml_dtypes, cupy, pytest) is what $(PYTHON) already has; nothing of it is changed.
GPU_PATH := PYTHONPATH=$(CURDIR)/build/gpu$(if $(PYTHONPATH),:$(PYTHONPATH))
ON_GPU := env PYTHONSAFEPATH=1 $(GPU_PATH) $(PYTHON)
GPU_REPORT ?= build/gpu-report
# The levels that the suite is asked for, one after the other while there is time; what is left of one
# goes on where it was ended: make gpu-conformance GPU_LEVELS=training. Further options: GPU_CONFORMANCE.
GPU_LEVELS ?= operators training full
GPU_CONFORMANCE ?=
# Another backend rehearses the recipe: GPU_BACKEND=cpu GPU_PLUGIN=
GPU_BACKEND ?= cuda
GPU_PLUGIN ?= cuda_cupy

gpu-install:
	rm -rf build/gpu
	$(PYTHON) -m pip install --quiet --no-index --no-deps --no-build-isolation \
	    --target build/gpu . ./plugins/cuda_cupy ./plugins/sparse ./plugins/quant || { \
	        echo "pip builds no packages here (for that: setuptools from 70.1, or with wheel): they are" \
	            "copied, and the hot modules stay interpreted"; \
	        $(PYTHON) plugins/cuda_cupy/install_copy.py build/gpu; }

gpu-test: gpu-install
	$(ON_GPU) -m pytest plugins/cuda_cupy/tests $(ARGS)

# Each of the three says what it has found when its seconds are over, and ends. A file that cannot be
# loaded keeps no other from running, and a warning of CuPy's is no failure, nor a reason to be without it.
gpu-tests:
	@mkdir -p $(GPU_REPORT)
	timeout -s INT -k 20 180 $(ON_GPU) -m pytest plugins/cuda_cupy/tests -m gpu -W default \
	    --continue-on-collection-errors --junitxml $(GPU_REPORT)/tests.xml $(ARGS)

# Cases that fail (status 1) keep no further level from running; no device, or the end of the time, do.
gpu-conformance:
	@mkdir -p $(GPU_REPORT)
	COREDISPATCH_PLUGINS=$(GPU_PLUGIN) timeout -k 20 135 sh -c 'trap : TERM; failed=0; for level in $(GPU_LEVELS); do \
	    $(ON_GPU) -m coredispatch conformance run --backend $(GPU_BACKEND) --level $$level --quiet \
	        --database $(GPU_REPORT)/conformance.sqlite --resume --json $(GPU_REPORT)/$$level.json \
	        $(GPU_CONFORMANCE) || { code=$$?; failed=1; \
	            test $$code -eq 1 || { echo "level $$level did not end, later ones did not run"; exit $$code; }; }; \
	    done; exit $$failed'

# It needs PyTorch with CUDA beside CuPy, and says so where it is not there. A script's own folder is
# on the path, not the checkout.
gpu-bench:
	@mkdir -p $(GPU_REPORT)
	timeout -s INT -k 20 150 env $(GPU_PATH) $(PYTHON) benchmarks/gpu.py --seconds 90 --json $(GPU_REPORT)/benchmark.json

# All that a device can say in ten minutes; what fails does not keep the rest from running.
gpu: gpu-install
	@status=0; $(ON_GPU) -m coredispatch info || status=1; \
	    for part in gpu-tests gpu-conformance gpu-bench; do \
	        $(MAKE) --no-print-directory $$part || status=1; done; \
	    exit $$status

clean:
	rm -rf build dist *.egg-info plugins/*/build plugins/*/*.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f *__mypyc.*.so $(CORE)
	find coredispatch -name '*.so' -delete
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
