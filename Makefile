# The README's commands. Each sees to what it needs before it builds.
SHELL := /bin/bash
CARGO ?= cargo

# command=package, where the Debian package has another name than its command.
BUILD_NEEDS := cmake gcc g++ make curl
TEST_NEEDS := $(BUILD_NEEDS) node=nodejs npm promtool=prometheus h2load=nghttp2-client initdb=postgresql mosquitto valgrind python3 pip3=python3-pip

# `make test` covers the gateway; `make check` covers the whole workspace.
PACKAGES ?=
# More for the load test: ARGS="--calls 1000000".
ARGS ?=

.PHONY: demo test check loadtest pgo counts renew-counts bench fmt

# The gateway with three agents on loopback, a fresh key, and curl lines to paste.
demo:
	@tests/setup $(BUILD_NEEDS)
	$(CARGO) run --locked --bin gatepost -- demo

# Every test. nextest where it is installed, cargo's own runner elsewhere.
test:
	@tests/setup $(TEST_NEEDS)
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
		set -ex; \
		$(CARGO) test --locked --doc $(PACKAGES); \
		$(CARGO) nextest run --locked $(PACKAGES); \
	else \
		set -ex; \
		$(CARGO) test --locked $(PACKAGES); \
	fi

# What a developer runs before a commit.
check:
	@tests/setup $(TEST_NEEDS)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items
	@$(CARGO) deny --version >/dev/null 2>&1 || { \
		echo "gatepost: installing cargo-deny (cargo install, a few minutes, once)"; \
		$(CARGO) install --locked cargo-deny; \
	}
	$(CARGO) deny --locked check licenses bans sources
	$(MAKE) test PACKAGES=--workspace

# What a call costs, beside other proxies: loadtest/README.md says how to read it.
# One build for both programs, so that they share their crates.
loadtest:
	@tests/setup $(BUILD_NEEDS)
	$(CARGO) build --locked --release --package gatepost --package gatepost-loadtest
	$${CARGO_TARGET_DIR:-target}/release/gatepost-loadtest run $(ARGS)

# The gateway built with what it saw of calls, which makes them much cheaper (loadtest/README.md says how much). It takes
# two builds of everything; ARGS="--gatepost target/pgo/gatepost" measures it.
pgo:
	@tests/setup $(BUILD_NEEDS)
	@CARGO="$(CARGO)" loadtest/pgo

# What a call costs in instructions, of the release build beside its record; `make test` does the same for its own build.
counts renew-counts: COUNT = $${CARGO_TARGET_DIR:-target}/release/gatepost-loadtest count
counts:
	@tests/setup $(BUILD_NEEDS) valgrind
	$(CARGO) build --locked --release --package gatepost --package gatepost-loadtest
	$(COUNT) --check tests/data/counts.json $(ARGS)

# The steps of a call's path by themselves, in nanoseconds. BENCH=token for those with the word in their names.
BENCH ?=
bench:
	@tests/setup $(BUILD_NEEDS)
	$(CARGO) bench --locked --package gatepost-loadtest --bench steps -- $(BENCH)

# Writes the record anew, for both builds, after a change that is meant to cost more or less.
renew-counts:
	@tests/setup $(BUILD_NEEDS) valgrind
	GATEPOST_RENEW_COUNTS=1 $(CARGO) test --locked --test it a_call_costs
	$(CARGO) build --locked --release --package gatepost --package gatepost-loadtest
	$(COUNT) --renew tests/data/counts.json $(ARGS)

fmt:
	$(CARGO) fmt --all
