.PHONY: build test lint fuzz bench e2e ci soak release

build: ## the binary, here
	CGO_ENABLED=0 go build -trimpath -o ferrule ./cmd/ferrule

test: ## the tests
	go test -race -gcflags=modernc.org/sqlite/lib=-race=false ./...

lint: ## format, vet, staticcheck
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted: $$unformatted"; exit 1; }
	go vet -tags bench ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 -tags bench ./...

fuzz: ## every fuzz target for half a minute
	bash .ci/fuzz 30s

bench: ## the ratios that CI asserts, with their figures
	CGO_ENABLED=0 go test -tags bench -p 1 -count=1 -v -run '^TestRatio' ./cmd/ferrule ./internal/sim ./internal/device/transport/websocket ./internal/device/transport/mqtt ./thing/mcpserver

e2e: ## agent programs that people use, with a stand-in for their model
	rig=$$(mktemp -d) && trap 'rm -rf "$$rig"' EXIT && bash internal/testenv/agents/install "$$rig" && \
	FERRULE_RIG_AGENTS=$$rig go test -count=1 -v -run '^TestAgents$$' ./cmd/ferrule

ci: ## the whole gate
	bash .ci/run

soak: ## what is too long for the gate; writes docs/figures
	bash .ci/soak

release: ## archives and packages of what is here, in dist
	bash .ci/release snapshot
