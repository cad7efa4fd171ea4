# The commands that README.md names. Each checks its prerequisites before it builds.
SHELL := /bin/bash
CARGO ?= cargo

# command=package where the Debian package's name differs from the command.
BUILD_NEEDS := cmake gcc g++ make curl
TEST_NEEDS := $(BUILD_NEEDS) chromium node=nodejs npm promtool=prometheus h2load=nghttp2-client initdb=postgresql mosquitto haproxy nginx valgrind python3 pip3=python3-pip openssl \
    strace ip=iproute2 systemd-analyze=systemd redis-server redis-sentinel faketime

# `make test` tests the gateway and its validator; `make check` tests the load test, too.
PACKAGES ?=

# nextest runs each test in a process of its own and ends one that hangs. Where it is not installed, cargo's own runner
# runs the tests as threads of one process, and a limit of time for all of them together ends a test that hangs. Tests of
# overload measure what a machine can do, so they run alone in both.
HAS_NEXTEST := $(CARGO) nextest --version >/dev/null 2>&1
TEST_LIMIT ?= 45m
# Additional options of the load test: ARGS="--calls 1000000".
ARGS ?=

.PHONY: demo test test-unit test-peers check loadtest release pgo counts renew-counts bench fmt fuzz mutants sbom

# The gateway with three agents on loopback, a new API key, and curl commands to paste.
demo:
	@tests/setup $(BUILD_NEEDS)
	$(CARGO) run --locked --bin gatepost -- demo

# All tests.
test:
	@tests/setup $(TEST_NEEDS)
	@if $(HAS_NEXTEST); then \
		set -ex; \
		$(CARGO) test --locked --doc $(PACKAGES); \
		$(CARGO) nextest run --locked --test-threads $$(( $$(nproc) * 2 )) $(PACKAGES); \
	else \
		set -ex; \
		$(CARGO) test --locked --doc $(PACKAGES); \
		$(CARGO) test --locked --lib --bins --tests --no-run $(PACKAGES); \
		timeout $(TEST_LIMIT) $(CARGO) test --locked --lib --bins $(PACKAGES); \
		timeout $(TEST_LIMIT) $(CARGO) test --locked --test it -- --test-threads=1 overload::; \
		timeout $(TEST_LIMIT) $(CARGO) test --locked --test it -- --skip overload:: --skip external::peers::large::; \
	fi

# The tests that need neither the network nor programs other than those of a build: all but those of the modules named
# `external`, and those of overload, attacks and scale, which measure the machine. Most of them wait for timers and
# connections, so more of them run at once than the machine has processors.
test-unit:
	@tests/setup $(BUILD_NEEDS)
	@if $(HAS_NEXTEST); then \
		set -ex; \
		$(CARGO) nextest run --locked --test-threads $$(( $$(nproc) * 3 )) \
			-E 'not test(/(^|::)external::/) and not test(/::scale::|^(overload|attacks)::/)' $(PACKAGES); \
	else \
		set -ex; \
		timeout $(TEST_LIMIT) $(CARGO) test --locked --lib --bins --tests --no-fail-fast $(PACKAGES) -- \
			--skip external:: --skip scale:: --skip overload:: --skip attacks::; \
	fi

# Every client and server of the frameworks, from their package registries; `make test` runs the fastest of them.
test-peers:
	@tests/setup $(TEST_NEEDS)
	$(CARGO) test --locked --test it -- --test-threads=2 external::peers::

# Everything to run before a commit.
check:
	@tests/setup $(TEST_NEEDS)
	$(CARGO) fmt --all --check
	# As an optimised build, which evaluates more at compile time and failed where others passed. The dependencies are those
	# of the other steps.
	$(CARGO) clippy --locked --workspace --all-targets --config profile.dev.package.gatepost.opt-level=3 \
		--config profile.dev.package.gatepost.debug-assertions=false -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items
	@$(CARGO) deny --version >/dev/null 2>&1 || { \
		echo "gatepost: installing cargo-deny (cargo install, a few minutes, once)"; \
		$(CARGO) install --locked --debug cargo-deny; \
	}
	$(CARGO) deny --locked check licenses bans sources
	$(MAKE) --no-print-directory test PACKAGES=--workspace

# What a call costs beside other proxies; see loadtest/README.md. One build for both programs, so that they share crates.
loadtest:
	@tests/setup $(BUILD_NEEDS)
	$(CARGO) build --locked --release --package gatepost --package gatepost-loadtest
	$${CARGO_TARGET_DIR:-target}/release/gatepost-loadtest run $(ARGS)

# The binary of a release: built with a profile of its calls, which makes them much cheaper (see loadtest/README.md), and
# without symbols, which are in target/pgo/gatepost.debug. It takes two complete builds.
# `make loadtest ARGS="--gatepost target/pgo/gatepost"` measures the result.
release pgo:
	@tests/setup $(BUILD_NEEDS) objcopy=binutils
	@CARGO="$(CARGO)" loadtest/pgo

# The instructions of a call in the release build, compared with the record; `make test` compares those of its own build.
counts renew-counts: COUNT = $${CARGO_TARGET_DIR:-target}/release/gatepost-loadtest count
counts:
	@tests/setup $(BUILD_NEEDS) valgrind
	$(CARGO) build --locked --release --package gatepost --package gatepost-loadtest
	$(COUNT) --check tests/data/counts.json $(ARGS)

# Times single steps of a call, in nanoseconds, and checks of small calls beside other validators. BENCH=token selects the
# steps with this word in their names.
BENCH ?=
bench:
	@tests/setup $(BUILD_NEEDS)
	$(CARGO) bench --locked --package gatepost-loadtest --bench steps -- $(BENCH)
	$(CARGO) bench --locked --package gatepost-json-schema --bench small_calls

# Updates the record for both builds, after a change that is meant to cost more or less.
renew-counts:
	@tests/setup $(BUILD_NEEDS) valgrind
	GATEPOST_RENEW_COUNTS=1 $(CARGO) test --locked --test it a_call_costs
	$(CARGO) build --locked --release --package gatepost --package gatepost-loadtest
	$(COUNT) --renew tests/data/counts.json $(ARGS)

fmt:
	$(CARGO) fmt --all

# Fuzzes every parser of bytes from elsewhere, FUZZ_SECONDS (300) each; TARGETS="agent_uri config" names some. It needs no
# nightly compiler, and is not part of `make check`, which runs the corpora once.
fuzz:
	@tests/setup $(BUILD_NEEDS)
	@$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install --locked --debug cargo-fuzz
	@tests/fuzz/run $(TARGETS)

# Changes the code of access, limits, contracts and request heads in some 150 places, one after the other, and names the
# changes that no unit test notices. SHARD=1/15 takes the next of the places; results are in target/mutants.
SHARD ?= 0/15
mutants:
	@tests/setup $(BUILD_NEEDS)
	@$(CARGO) nextest --version >/dev/null 2>&1 || $(CARGO) install --locked --debug cargo-nextest
	@$(CARGO) mutants --version >/dev/null 2>&1 || $(CARGO) install --locked --debug cargo-mutants
	@mkdir -p $${CARGO_TARGET_DIR:-target}
	$(CARGO) mutants --config tests/mutants.toml --sharding round-robin --shard $(SHARD) --output $${CARGO_TARGET_DIR:-target}/mutants

# The software bill of materials of this platform's binary, or that of SBOM_TARGET, in target/sbom.
sbom:
	@tests/setup $(BUILD_NEEDS) python3
	@$(CARGO) cyclonedx --version >/dev/null 2>&1 || $(CARGO) install --locked --debug cargo-cyclonedx
	@tests/sbom
