# `make serve` and `make test` do everything on a fresh machine with Python 3.11+, Node 20.19+ and make.
PYTHON ?= python3
SHA512SUM := $(shell command -v sha512sum >/dev/null 2>&1 && echo sha512sum || echo shasum -a 512)
VENV := .venv
BIN := $(VENV)/bin
WEB_SOURCES := web/index.html web/vite.config.js $(wildcard web/src/*)

.PHONY: setup engine serve test test-fast conventions proofs test-interpreted jit-conformance workload faults chaos soak fuzz upgrade-data lint types check bench lock docs rehearse lambda clean

setup: $(VENV)/.ready node_modules/.ready web/dist/index.html engine

# npm has dynoxide for Linux on x64 only. Elsewhere MiniStack is the embedded engine.
engine: $(VENV)/.ready node_modules/.ready
	@$(BIN)/python -m datastore.engine.programs || $(MAKE) --no-print-directory .venv-ministack/.ready

$(VENV)/.ready: requirements-dev.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	touch $@

# Optional packages are dynoxide and the part of Vite that is built for this platform: an npm that omits them is overruled.
node_modules/.ready: package-lock.json
	npm ci --include=optional --no-fund --no-audit --loglevel=error
	touch $@

# The public clients and checkers that tests run against the gateway. The gateway itself needs none of them.
tests/clients/node_modules/.ready: tests/clients/package-lock.json
	npm ci --prefix tests/clients --include=optional --no-fund --no-audit --loglevel=error
	touch $@

# The packages of the example clients, which tests run.
examples/node_modules/.ready: examples/package-lock.json
	npm ci --prefix examples --no-fund --no-audit --loglevel=error
	touch $@

web/dist/index.html: node_modules/.ready $(WEB_SOURCES) package.json
	npm run --silent build
	touch $@

serve: setup
	$(BIN)/python gateway.py serve $(ARGS)

# Compiles the test modules once. Otherwise each of the four pytest workers of a fresh clone would compile all of them.
tests/__pycache__/.ready: $(VENV)/.ready
	find tests -name 'test_*.py' | grep -v node_modules | env -u PYTHONDONTWRITEBYTECODE xargs -n 70 -P 2 $(BIN)/python -m pytest -q --collect-only >/dev/null
	touch $@

# AWS's own implementation of DynamoDB, as an npm package ships it; it needs Java 17.
DYNAMODB_LOCAL := amplify-dynamodb-simulator-2.9.30.tgz
DYNAMODB_LOCAL_SHA512 := c5379e44bbf311fab2779961ddb1f8734907bd21c79a6843e590ec1c5280439836665e89aa515dbad6908422c7cf1129e91cb5a3b4c1ea7888a17b9002749ec1
build/dynamodb-local/.ready: Makefile
	@java -version >/dev/null 2>&1 || { echo "DynamoDB Local needs Java 17: install Debian's openjdk-17-jre-headless, or another one" >&2; exit 1; }
	rm -rf build/dynamodb-local && mkdir -p build/dynamodb-local
	cd build && npm pack --silent amplify-dynamodb-simulator@2.9.30 >/dev/null
	cd build && echo "$(DYNAMODB_LOCAL_SHA512)  $(DYNAMODB_LOCAL)" | $(SHA512SUM) --check --quiet
	tar -xzf build/$(DYNAMODB_LOCAL) -C build/dynamodb-local --strip-components=2 package/emulator
	rm build/$(DYNAMODB_LOCAL)
	touch $@

.venv-ministack/.ready: requirements-ministack.txt
	test -x .venv-ministack/bin/python || $(PYTHON) -m venv .venv-ministack
	.venv-ministack/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-ministack.txt
	touch $@

# ENGINE selects the engine of the tests: dynoxide, dynamodb-local or ministack. The default is dynoxide, or MiniStack where
# dynoxide is not installed. On other engines only the modules in tests/support/engine_limitations.py run.
ENGINE_READY_dynamodb-local := build/dynamodb-local/.ready
ENGINE_READY_ministack := .venv-ministack/.ready

# The tests start commands as processes: with cached bytecode these start in half the time.
test: export ENGINE := $(ENGINE)
test: setup .venv-ministack/.ready tests/clients/node_modules/.ready tests/__pycache__/.ready $(ENGINE_READY_$(ENGINE))
	@[ -n "$(ENGINE)" ] || $(BIN)/python -m datastore.engine.programs || echo "dynoxide is not installed here: the tests run on MiniStack."
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -q -n 5 --dist loadfile --no-loadscope-reorder -m "not proof" $(ARGS)

# The tests that need neither the engine nor another process, in about half a minute: for the working loop.
test-fast: export TEST_FAST = 1
test-fast: $(VENV)/.ready tests/__pycache__/.ready
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -q -n 3 -m "not engine and not process and not browser and not node and not redis and not proof" $(ARGS)

# Everything that holds for all declarations, in about half a minute. The cases are those of tests/support/contract/.
CONVENTIONS := $(addprefix tests/api/test_,contract.py roles.py authorization.py repeated_mutations.py lists.py) \
  tests/api/test_explain.py::test_the_explanation_of_each_pattern_matches_the_wire \
  tests/unit/datastore/infrastructure/test_expired_items.py \
  $(addprefix tests/operations/test_,documentation.py glossary.py language.py layers.py test_code.py)
conventions: setup tests/__pycache__/.ready
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -q -n 4 $(CONVENTIONS) $(ARGS)

# The long runs: faults, random workloads, fuzzing, real data, and compiled execution beside graphql-core.
proofs: setup .venv-ministack/.ready tests/clients/node_modules/.ready examples/node_modules/.ready tests/__pycache__/.ready
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder -m proof $(ARGS)

# The tests with all operations executed by graphql-core, without compiled execution.
test-interpreted: export GATEWAY_EXECUTOR = interpreted
test-interpreted: test

# graphql-core's own tests, with each operation compiled at its first execution: about 20 s. The parts that execute no
# operations (language, validation, pyutils) are left out.
CORE_TESTS := execution error type utilities test_graphql.py test_star_wars_introspection.py test_star_wars_query.py test_user_registry.py
jit-conformance: $(VENV)/.ready build/graphql-core/.ready
	cd build/graphql-core/graphql_core-* && PYTHONPATH="$(CURDIR):$(CURDIR)/tests/conformance:.." \
	  $(CURDIR)/$(BIN)/python -m pytest -q -p compiled_core -p no:cacheprovider -o addopts= -o timeout=600 $(addprefix tests/,$(CORE_TESTS)) $(ARGS)

# The source is downloaded with pip, which builds its metadata. The plugin is not installed, only unpacked beside it.
build/graphql-core/.ready: tests/conformance/requirements.txt | $(VENV)/.ready
	rm -rf build/graphql-core && mkdir -p build/graphql-core
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary graphql-core \
	  --require-hashes -r $< -d build/graphql-core
	cd build/graphql-core && tar -xzf graphql_core-*.tar.gz && $(CURDIR)/$(BIN)/python -m zipfile -e pytest_describe-*.whl .
	touch $@

# The feed's random workload at full length, some ten minutes: 20,000 operations by 200 users, four times over.
workload: setup
	FEED_OPERATIONS=20000 FEED_USERS=200 FEED_KILLS=20 $(BIN)/python -m pytest -q -n 2 tests/proofs/test_feed_workload.py $(ARGS)

# A mixed load of 50,000 operations on a store that fails one call in five, with measurements.
faults: setup
	FAULT_OPERATIONS=50000 $(BIN)/python -m pytest -q -s tests/proofs/test_fault_load.py $(ARGS)

# Ten minutes of kills, pauses and rolling restarts of each process of a deployment under load, and a page of results.
# ARGS="--minutes 2 --seed 7" for a shorter run, and one that was printed. Needs HAProxy and redis-server.
chaos: setup
	$(BIN)/python -m tests.support.chaos $(ARGS)

# A deployment at half of its maximum load for a quarter of an hour, with the memory of its processes.
soak: setup
	SOAK_SECONDS=900 SOAK_VIEWERS=200 $(BIN)/python -m pytest -q -s tests/proofs/test_soak.py $(ARGS)

# Parsers of untrusted input, fuzzed for FUZZ_SECONDS (600) in FUZZ_JOBS (1) processes; ARGS names targets. See docs/reliability-tests.md.
fuzz: $(VENV)/.ready
	$(BIN)/python -m tests.support.fuzzing $(ARGS)

# The data of this version for tests/upgrades, which later versions open in their tests: see CONTRIBUTING.md.
upgrade-data: setup
	$(BIN)/python -m tests.support.upgrade_data

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/mypy

check: lint types test

bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

# The feed's stream handler for AWS Lambda: build/feed-lambda.zip. ARGS="--python 3.12 --machine aarch64" for another runtime.
lambda: $(VENV)/.ready
	$(BIN)/python deploy/lambda_package.py $(ARGS)

# Executes the Dockerfile and the image's entrypoint without Docker, in empty roots. Needs root, on Linux.
rehearse: setup
	$(BIN)/python deploy/rehearse.py

# Generated pages: the schema's SDL, docs/access-patterns/, docs/stored-items/ and docs/settings.md. A test fails when they are stale.
docs: setup
	$(BIN)/python gateway.py schema > schema/api.graphql
	$(BIN)/python -m datastore.keyspace
	$(BIN)/python -m datastore.stored_items
	$(BIN)/python -m runtime.declared.page > docs/settings.md

# Needs uv (https://docs.astral.sh/uv/); the lock files hold versions and hashes, no registry address.
# uv keeps the locked versions that pyproject.toml still allows; LOCK=--upgrade takes the newest.
LOCKED := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header $(LOCK)
lock:
	$(LOCKED) pyproject.toml --group dev -o requirements-dev.txt
	$(LOCKED) pyproject.toml -c requirements-dev.txt -o requirements.txt
	$(LOCKED) --group lambda -c requirements-dev.txt -o requirements-lambda.txt
	$(LOCKED) --group ministack -o requirements-ministack.txt

clean:
	rm -rf $(VENV) .venv-ministack build node_modules tests/clients/node_modules examples/node_modules examples/dist benchmarks/peers/node_modules web/dist .data .pytest_cache .mypy_cache .ruff_cache .hypothesis
