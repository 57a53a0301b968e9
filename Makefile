# Names for what one does here; see README.md. CARGO_TARGET_DIR is honoured everywhere.

.DEFAULT_GOAL := help
.PHONY: help manual deb oci package demo test test-fast test-unit test-crates test-e2e test-python fuzz soak nightly kills power-offs vopr crash-states planted-bugs sanitize suites bench bench-isolation reference lint

CARGO ?= cargo
# How long each target of `make fuzz` looks for new inputs, from those of fuzz/saved on. Longer runs are for a night.
FUZZ_SECONDS ?= 10
# How often `make kills` ends a server.
KILLS ?= 1000
# How often `make power-offs` cuts the power of a guest.
POWER_OFFS ?= 200
# Arguments of `make demo`, `make soak`, `make vopr`, `make bench` and others, e.g. make demo ARGS="--image 2GiB --lower 1GiB".
ARGS ?=

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

demo: ## the two-level cache live on this machine, beside its prediction
	@scripts/install-deps demo
	$(CARGO) run --profile demo --locked -p futae-cli --no-default-features --bin futae -- demo $(ARGS)

# test-lanes runs the tests of test-crates and test-e2e as one, so that crates have the same features in all and are built once.
test: ## every test, cheap ones first
	@scripts/install-deps test
	$(MAKE) test-unit
	scripts/test-lanes

# Of integration tests those whose names no test with a mount has. All crates have the features that `make test` builds them with,
# so nothing is compiled for this alone.
FAST = tidy tidy_circles commands frames receiver bounds learns boundaries curves guests one_lru one_pass results reviews shared uniform \
	wrong_end broken hashed_keys real_traces

test-fast: ## for one who edits: unit tests, and the tests that need no mount and no guest
	$(CARGO) test --locked --lib --bins $(addprefix --test ,$(FAST))

test-unit: ## unit tests and examples in the documentation
	$(CARGO) test --locked --lib --bins
	$(CARGO) test --locked --doc

test-crates: ## each crate's own integration tests
	$(CARGO) test --locked --workspace --exclude futae-python --exclude futae-tests --test '*'

test-e2e: ## the tidy test, and the real binary from end to end
	$(CARGO) test --locked -p futae-tests --tests

test-python: ## the Python package: its wheel in a clean environment, beside the command line (part of test-e2e)
	@scripts/install-deps test
	@scripts/test-python $(ARGS)

fuzz: ## looks for new inputs with every fuzz target on stable Rust, FUZZ_SECONDS each; the saved ones are part of `make test`
	@scripts/fuzz $(FUZZ_SECONDS)

soak: ## the model checker of consistency for an hour; ARGS="--seconds N --seed N --rounds N --restarts N"
	@scripts/install-deps test
	@scripts/soak $(ARGS)

nightly: ## everything at once for an hour, with memory, descriptors and threads flat; ARGS="--seconds N --seed N --without NAME"
	@scripts/install-deps test
	@scripts/nightly $(ARGS)

kills: ## servers killed and upgraded under load with a verified write log, KILLS times in each write mode
	FUTAE_MEMORY_KILLS=$(KILLS) $(CARGO) test --release --locked -p futae-tests --test kept_memory killed_under -- --nocapture --test-threads 1

power-offs: ## guests whose power is cut while they write, and often their server with it, POWER_OFFS times in each write mode
	FUTAE_POWER_OFFS=$(POWER_OFFS) $(CARGO) test --release --locked -p futae-tests --test power_off -- --nocapture --test-threads 1

vopr: ## the real engine simulated over failing disks from one seed; ARGS="--seed N --seconds N --runs N --trace"
	@$(CARGO) run --quiet --profile vopr --locked -p futae-vopr -- run $(ARGS)

crash-states: ## every state that a crash can leave of a disk, judged; ARGS="--seed N --seconds N --runs N --trace"
	@$(CARGO) run --quiet --profile vopr --locked -p futae-vopr -- states $(ARGS)

planted-bugs: ## bugs planted in the engine, each of which the two above must find; ARGS="--seed N --seconds N"
	@scripts/planted-bugs $(ARGS)

sanitize: ## tests under Miri, AddressSanitizer and ThreadSanitizer, with Rust's nightly; ARGS="miri address thread"
	@scripts/sanitize $(ARGS)

suites: ## file-system test suites of others, with and without futae; ARGS="pjdfstest fsx --mode back --operations N --seeds N"
	@scripts/suites $(ARGS)

bench: ## speed figures, for lab/results/
	@scripts/install-deps bench
	@scripts/bench $(ARGS)

bench-isolation: ## what attackers can do to an honest client; status 1 beyond the limits
	@scripts/bench-isolation $(ARGS)

reference: ## the generated pages of the book: commands.md, policies.md, metrics.md and laboratory.md in docs/reference/
	$(CARGO) build --locked --bin futae --bin futae-lab
	programs="$${CARGO_TARGET_DIR:-target}/debug"; \
	page() { "$$programs/$$2" reference $$3 > docs/reference/$$1.md.new && mv docs/reference/$$1.md.new docs/reference/$$1.md; }; \
	page commands futae commands && page policies futae policies && page metrics futae metrics && page laboratory futae-lab

manual: ## manual pages and completions of shells, in target/manual/
	$(CARGO) run --quiet --locked -p futae-cli --bin futae -- reference manual target/manual

deb: manual ## Debian packages of futae, of its mount helper and of the agent, in target/debian/
	@command -v cargo-deb >/dev/null || $(CARGO) install --locked cargo-deb --version 3.8.0
	for crate in futae-cli futae-agent; do $(CARGO) deb --locked --profile dist --package $$crate || exit 1; done
	$(CARGO) deb --locked --profile dist --package futae-cli --variant mount --no-build

oci: deb ## an OCI image of the host's package, in target/futae-oci.tar; needs root, mmdebstrap and umoci
	@# Packages of earlier versions may lie beside the one that was just built.
	scripts/oci-image "$$(ls -t $${CARGO_TARGET_DIR:-target}/debian/futae_*.deb | head -n 1)" target/futae-oci.tar

package: ## what each published crate would hold; nothing is uploaded
	$(CARGO) package --workspace --locked --no-verify --allow-dirty --quiet \
		--exclude futae-lab --exclude futae-python --exclude futae-papers --exclude futae-machine --exclude futae-bench \
		--exclude futae-tests --exclude futae-testkit --exclude futae-vopr --exclude futae-inputs --exclude futae-interleavings --exclude futae-examples

lint: ## format, clippy and documentation, without a warning
	$(CARGO) fmt --all --check
	rustfmt --edition 2024 --check crates/futae-policy/src/replace/*.rs
	$(CARGO) clippy --workspace --locked --all-targets -- -D warnings
	$(CARGO) clippy -p futae-cli --locked --no-default-features -- -D warnings
	@# The registry's index, which packages are checked with, is waited for meanwhile.
	$(MAKE) package & RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --locked --no-deps && wait $$!
	$(CARGO) metadata --locked --manifest-path fuzz/Cargo.toml --format-version 1 >/dev/null
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	for script in scripts/* .ci/run; do \
		case "$$(head -n 1 "$$script")" in \
			*python3) python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$$script" ;; \
			*) bash -n "$$script" ;; \
		esac || exit 1; \
	done
