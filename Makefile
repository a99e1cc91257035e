GO           ?= go
LINT_VERSION := v2.15.0
FUZZTIME     ?= 20s
BENCHTIME    ?= 1x
MIN_COVER    ?= 85
ROUNDS       ?= 5
CGROUP2_OPTS ?= --mem 1G --cpus 2 --disk 64M --timeout 240
FRESH        ?= 0s
HOSTILE_FOR  ?= 10m
N            ?= 200000
MUTATIONS    ?= 60

# Images of make conformance-cri: one with a shell, one to pull and remove, and one that does not exist.
IMAGE         ?= docker.io/library/busybox:1
PULL_IMAGE    ?= docker.io/library/hello-world:latest
MISSING_IMAGE ?= missing.invalid/missing:1

# The nested modules. The comparison with the kubelet is separate: it builds without cgo, so the
# race detector is not available, and it covers code of other modules.
PEER    := ./test/peer
NESTED  := $(filter-out $(PEER),$(shell find . -mindepth 2 -name go.mod -printf '%h\n' | sort))
MODULES := . $(NESTED)

# The comparisons of $(PEER). P selects some of them: make peer-long P=eviction
P          ?= $(shell cd $(PEER) && grep -rl --include='*_test.go' '^func TestPeer' . | xargs -r -n1 dirname | sort -u)
PEER_TEST  := CGO_ENABLED=0 $(GO) test -vet=off -ldflags='-s -w' -count=1

# The linter is not in go.mod. It is built once per version.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kubeparts/golangci-lint-$(LINT_VERSION)
LINT  := $(CACHE)/golangci-lint

.PHONY: help test race lint fmt generate golden fuzz hostile hostile-short bench bench-node bench-report cover cover-table peer peer-long peer-record peer-mutate peer-cover peer-page e2e e2e-runtimes cluster-e2e chaos cluster-peer conformance conformance-cri conformance-17 test-cgroup2 run linter ci

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' Makefile

test: ## run all tests that need only Go: no root, no network except for modules
	$(GO) test ./...

race: ## run all tests under the race detector, in random order (needs a C compiler); prints the coverage of each package
	@for m in $(MODULES); do echo "== $$m"; (cd $$m && CGO_ENABLED=1 $(GO) test -vet=off -race -cover -shuffle=on ./...) || exit 1; done

lint: $(LINT) ## check lint rules and formatting of all modules with the pinned golangci-lint
	@for m in $(MODULES) $(PEER); do \
		cgo=; [ $$m != $(PEER) ] || cgo=CGO_ENABLED=0; \
		echo "== $$m"; (cd $$m && env $$cgo $(LINT) run --config $(CURDIR)/.golangci.yml ./...) || exit 1; \
	done

fmt: $(LINT) ## format all code (gofumpt, gci)
	$(LINT) fmt

generate: ## run go generate
	$(GO) generate ./...

golden: ## rewrite golden files and the dependency table; review the diff
	@grep -rl --include='*_test.go' --exclude-dir=testdata '"github.com/cockroachdb/datadriven"' . | \
	xargs -rn1 dirname | sort -u | while read -r dir; do (cd "$$dir" && CGO_ENABLED=0 $(GO) test -count=1 . -args -rewrite) || exit 1; done

fuzz: ## run each fuzz test for FUZZTIME (20s)
	@bin=$$(mktemp -d) && trap 'rm -rf "$$bin"' EXIT && cache=$$($(GO) env GOCACHE)/fuzz && \
	grep -rHo --include='*_test.go' --exclude-dir=testdata '^func Fuzz[A-Za-z0-9_]*' . | \
	sed 's|/[^/]*:func | |' | sort | while read -r dir name; do \
		if [ "$$dir" != "$$built" ]; then \
			$(GO) test -c -vet=off -fuzz=. -o "$$bin/fuzz" "$$dir" </dev/null && pkg=$$($(GO) list "$$dir") || exit 1; \
			built=$$dir; \
		fi; \
		echo "== $$dir $$name"; \
		until out=$$(cd "$$dir" && "$$bin/fuzz" -test.run='^$$' -test.fuzz="^$$name\$$" -test.fuzztime=$(FUZZTIME) \
			-test.fuzzcachedir="$$cache/$$pkg" </dev/null 2>&1); do \
			if ! echo "$$out" | grep -q '^ *context deadline exceeded$$' || echo "$$out" | grep -q 'Failing input'; then \
				echo "$$out"; exit 1; \
			fi; \
			echo "== running it again: the fuzzer reported the end of its time as an error"; \
		done; \
		echo "$$out"; \
	done

hostile: ## attack the example agent for HOSTILE_FOR (10m) with random seeds; HOSTILE_SEED sets the first seed
	HOSTILE_FOR=$(HOSTILE_FOR) HOSTILE_SEED=$(HOSTILE_SEED) $(GO) test -tags hostile -count=1 -timeout 0 -v -run '^TestHostile$$' ./test/hostile

hostile-short: ## run a short attack, always with the same seed
	$(GO) test -tags hostile -count=1 -v ./test/hostile

bench: ## run each benchmark once, or for BENCHTIME (such as 1s)
	$(GO) test -run='^$$' -bench=. -benchmem -benchtime=$(BENCHTIME) ./...

bench-node: ## measure the cost of an agent with 110 and 500 pods: idle, with probes, with churn; ARGS: see test/nodecost
	$(GO) run ./test/nodecost $(ARGS)

bench-report: ## run the benchmarks and write docs/benchmarks.md; E2E_LOG: a file with the output of make e2e
	$(GO) run ./test/benchreport $(if $(E2E_LOG),-e2e $(E2E_LOG))

cover: ## report statement coverage; fails if a package is below MIN_COVER (85) percent, except examples and tools
	@out=$$(for m in $(MODULES); do (cd $$m && $(GO) test -vet=off -cover ./...) || exit 1; done) || { echo "$$out"; exit 1; }; \
	echo "$$out" | $(MAKE) --no-print-directory cover-table

cover-table: # read the output of go test -cover, for example of make race, and report as make cover does
	@sed -nE 's/^(ok)?[[:space:]]+([^[:space:]]+)[[:space:]].*coverage: ([0-9.]+)%.*/\3 \2/p' | \
	awk -v min=$(MIN_COVER) ' \
		$$1 + 0 < min && $$2 !~ /\/(examples|test)\// { note = "  below " min; bad = 1 } \
		{ printf "%6s%%  %s%s\n", $$1, $$2, note; note = "" } \
		END { if (NR == 0) { print "no package with a coverage in the input"; bad = 1 } exit bad }'

peer: ## compare decisions with the kubelet's own packages: fixed seeds, then other seeds of the last long run for FRESH (0s) each
	@cd $(PEER) && PEER_FRESH=$(FRESH) $(PEER_TEST) $(if $(filter command,$(origin P)),$(P),./...)

peer-long: ## run N (200000) scenarios of each comparison; continues where it stopped
	@cd $(PEER) && for p in $(P); do PEER_LONG=$(N) $(PEER_TEST) -timeout 0 -run '^TestPeer' -v $$p || exit 1; done

peer-record: ## write the rules and their seeds to the records
	@cd $(PEER) && for p in $(P); do PEER_RECORD=1 $(PEER_TEST) -timeout 1h -run '^TestPeer' $$p || exit 1; done

peer-mutate: ## check that the comparisons find MUTATIONS (60) mutations of our decision code; writes the tables
	@cd $(PEER) && for p in $(P); do CGO_ENABLED=0 $(GO) run ./mutate -write -n $(MUTATIONS) $$p || exit 1; done

peer-cover: ## report which statements of our decision code the comparisons execute
	@cd $(PEER) && CGO_ENABLED=0 $(GO) run ./cover $(P)

peer-page: ## write docs/how-we-know.md from the records
	@cd $(PEER) && CGO_ENABLED=0 $(GO) run ./page

e2e: ## run end-to-end tests: real pods on a containerd that make starts, and tests on this machine's kernel; needs root on Debian
	$(GO) test -vet=off -tags e2e -count=1 -timeout 45m -parallel 5 -v ./test/e2e
	@grep -rlE --include='*_test.go' '^//go:build.*\be2e\b' . | xargs -r -n1 dirname | grep -vx ./test/e2e | sort -u | while read -r dir; do \
		(cd "$$dir" && $(GO) test -vet=off -tags e2e -count=1 -timeout 15m -v -run '^TestE2E' .) || exit 1; \
	done

e2e-runtimes: ## run test/e2e on containerd 2.4, 1.7 and 1.6, and report the results of each; needs root on Debian
	test/e2e/runtimes.sh

cluster-e2e: ## run tests of cluster-agent as a node of a real cluster that the tests start; needs root on Debian
	$(GO) test -vet=off -tags cluster -count=1 -timeout 30m -v ./test/clusterbed

chaos: ## run fault tests of cluster-agent as a node of a real cluster that the tests start; needs root on Debian, and half an hour
	$(GO) test -vet=off -tags chaos -count=1 -timeout 60m -v ./test/clusterbed

conformance: ## run Kubernetes' specs with the label NodeConformance on a cluster with the NODE cluster-agent (default) or kubelet; needs root on Debian
	KPCLUSTER_NODE=$(NODE) KPCLUSTER_SPECS=all $(GO) test -vet=off -tags cluster -count=1 -timeout 3h -v -run '^TestSpecs$$' ./test/clusterbed

cluster-peer: ## measure the kubelet and cluster-agent in turn as the node of a cluster, ROUNDS (5) times; needs root on Debian, an hour, and a quiet machine
	KPCLUSTER_ROUNDS=$(ROUNDS) $(GO) test -vet=off -tags cluster,measure -count=1 -timeout 3h -v -run '^TestComparison_AgentAndKubelet$$' ./test/clusterbed

conformance-cri: ## check the CRI runtime at SOCKET; IMAGE, PULL_IMAGE, MISSING_IMAGE, CGROUP_PARENT: see fakecri/conformance
	@KPCRI_SOCKET="$(SOCKET)" KPCRI_IMAGE="$(IMAGE)" KPCRI_PULL_IMAGE="$(PULL_IMAGE)" KPCRI_MISSING_IMAGE="$(MISSING_IMAGE)" \
		KPCRI_CGROUP_PARENT="$(CGROUP_PARENT)" $(GO) test -tags conformance -count=1 -v -run '^TestSocket$$' ./fakecri/conformance

conformance-17: ## run conformance-cri on a containerd 1.7 that the script starts and stops; needs root on Debian
	test/testbed/conformance.sh 1.7

test-cgroup2: ## run the tests that need cgroup v2, PSI or a disposable machine, in QEMU; needs root on Debian
	@grep -rl --include='*_test.go' '^//go:build.*cgroup2' . | xargs -r -n1 dirname | sort -u | while read -r dir; do \
		CGO_ENABLED=0 KPCGROUP2_OPTS="$(CGROUP2_OPTS)" $(GO) test -tags cgroup2 -count=1 -v -run '^TestCgroup2' \
			-exec "$(CURDIR)/test/cgroup2/run.sh --" "$$dir" </dev/null || exit 1; \
	done

run: ## run the example agent on the embedded runtime
	$(GO) run ./examples/minimal-agent

linter: $(LINT) # build the pinned golangci-lint, if it is missing

ci: ## run all checks that a change must pass
	.ci/run

$(LINT):
	GOBIN=$(CACHE) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
