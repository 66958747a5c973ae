.PHONY: help build check test lint ci peers measure nightly fuzz bench e2e soak release

help: ## list the targets
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' Makefile | expand -t 10

build: ## build the binary ./ferrule
	CGO_ENABLED=0 go build -trimpath -o ferrule ./cmd/ferrule

check: ## the quick answer: format, vet, lint, unit tests; two minutes
	bash .ci/check

ci: ## the gate: everything that a commit must pass; 25 to 40 minutes
	bash .ci/run

peers: ## jobs of real parts: all, or those in JOBS
	bash .ci/jobs $(JOBS)

measure: ## times, ratios and memory, on a quiet machine
	bash .ci/measure

nightly: ## what takes too long for the gate
	bash .ci/nightly

test: ## all tests, with the race detector
	go test -race -gcflags=modernc.org/sqlite/lib=-race=false ./...

lint: ## format, vet, staticcheck
	bash .ci/check lint

fuzz: ## every fuzz target for half a minute
	bash .ci/fuzz 30s

bench: ## all ratios, with their figures
	RUN='^TestRatio' bash .ci/measure

e2e: ## real agent programs, with a stand-in for their model
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && bash internal/testenv/agents/install "$$dir" && \
	FERRULE_TEST_AGENTS=$$dir go test -count=1 -v -run '^TestAgent(s|Abilities)$$' ./cmd/ferrule

soak: ## long measurements; writes docs/figures
	bash .ci/soak

release: ## archives and packages, in dist
	bash .ci/release snapshot
