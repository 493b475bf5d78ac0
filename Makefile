# Everything a person types. Node 24 comes with the npm packages, so that the machine's own Node only has to run npm.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
NODE := node_modules/.bin/node

# Three files at once on two cores: most of what they do is wait for a lease, a deadline or an engine.
TEST_CONCURRENCY ?= 3

.PHONY: help demo test unit chaos lint types generate up down bench clean

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

demo: node_modules ## The whole product in one story, on real parts; KEEP=1 leaves it running until make down
	@$(NODE) hack/demo.ts

test: node_modules ## Lint, then every test on real parts; the first run on a machine compiles Kubernetes (about 16 min)
	@$(NODE) hack/require.ts test
	@$(MAKE) --no-print-directory lint
	@cd operator/helper && CGO_ENABLED=0 go test ./...
	@$(NODE) hack/with-parts.ts -- $(NODE) hack/run-tests.ts --concurrency $(TEST_CONCURRENCY)

unit: node_modules ## Only the tests that need no parts
	@$(NODE) hack/run-tests.ts --unit

chaos: node_modules ## Kills and breaks everything, and counts what was lost; CHAOS_SEED=, CHAOS_FAULTS=60
	@$(NODE) hack/require.ts chaos
	@$(NODE) test/chaos/chaos.ts

lint: node_modules ## Types, style, import direction, drift of generated files
	@$(NODE) node_modules/typescript/bin/tsc
	@$(NODE) node_modules/@biomejs/biome/bin/biome check --error-on-warnings .
	@$(NODE) hack/checks/import-direction.ts
	@$(NODE) crds/generate.ts --check
	@$(NODE) hack/generate-docs.ts --check

generate: node_modules ## CRDs, admission policies and the tables of docs/ from the schemas
	@$(NODE) crds/generate.ts
	@$(NODE) hack/generate-docs.ts

up: node_modules ## Control plane, engine and registry in the background; writes .local/parts.json
	@$(NODE) hack/up.ts

down: node_modules ## Ends what `make up` or `make demo KEEP=1` started
	@$(NODE) hack/down.ts

bench: node_modules ## create→Ready, exec and hibernate beside the bare Engine API; writes bench-results.json
	@$(NODE) hack/require.ts bench
	@$(NODE) hack/with-parts.ts -- $(NODE) test/bench/sessions.ts

clean: ## Installed packages; compiled parts stay in ~/.cache/agent-worlds
	@rm -rf node_modules

node_modules: package-lock.json package.json crds/package.json operator/package.json sdk/package.json
	@sh hack/before-npm.sh
	@npm ci --no-audit --no-fund --loglevel=error >&2
	@touch node_modules
