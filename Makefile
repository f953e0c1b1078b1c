# conch: one static binary. `make run` shows it working, `make test` proves it.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
export CGO_ENABLED = 0

.DEFAULT_GOAL := build

.PHONY: build
build: page ## build bin/conch
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/conch ./cmd/conch

.PHONY: page
page: ## build the web page (web/), which goes into the binary; needs npm
	@sh scripts/page.sh

.PHONY: run
run: build ## build, start it with its defaults, and give a short tour
	@sh scripts/tour.sh

.PHONY: test
test: tools build ## all tests, with the race detector
	CGO_ENABLED=1 $(GO) vet ./...
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 $(GO) test -race -timeout 15m ./...

.PHONY: tools
tools: ## install what tests need beyond Go (as root, from Debian's packages)
	@sh scripts/tools.sh

.PHONY: bench
bench: build ## measure against plain bash in the same run; writes bench-out/bench.json
	@mkdir -p bench-out
	bin/conch bench --out bench-out/bench.json

.PHONY: soak
soak: build ## the long runs: seq under load, 1 GB through exec, mail, labels and mail between homes under kills, random talks, relays killed and cut off
	CGO_ENABLED=0 CONCH_SOAK=1 $(GO) test -count=1 -timeout 180m -run 'Soak' ./internal/conchtest
	CGO_ENABLED=0 $(GO) test -count=1 -timeout 60m -run 'TestAnyOrder' ./internal/seal -rapid.checks=1000
	CGO_ENABLED=0 RELAY_KILLS=200 $(GO) test -count=1 -timeout 60m -run 'Killed|Cluster' ./internal/relay

.PHONY: fuzz
fuzz: ## fuzz every parser, and the API by its own description, for a while
	@for t in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$t | grep '^Fuzz' || true); do \
		echo "$$t $$f"; CGO_ENABLED=0 $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $${FUZZTIME:-30s} -fuzzminimizetime 1s $$t || exit 1; done; done
	CGO_ENABLED=0 CONCH_FUZZ_REQUESTS=$${REQUESTS:-20000} $(GO) test -count=1 -timeout 30m -run 'TestHostileRequests' -v ./internal/conchtest

.PHONY: lint
lint: ## format, vet, static checks
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) vet ./...
	GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

.PHONY: clean
clean: ## remove what was built
	rm -rf bin bench-out web/node_modules web/artefacts
	find internal/web/dist -type f ! -name README -delete

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
