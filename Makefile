# Everything that a person or a CI does with this project. `make` alone lists it.
#
# One profile (dev) serves the tests, the demo and CI; the benchmarks use release. Dependencies are optimized in both.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export CARGO_TARGET_DIR ?= $(CURDIR)/target
override CARGO_TARGET_DIR := $(abspath $(CARGO_TARGET_DIR))

# What compiling one guest leaves behind serves the others.
export FOREBAY_GUEST_TARGET_DIR ?= $(CARGO_TARGET_DIR)/guests

FOREBAY := $(CARGO_TARGET_DIR)/debug/forebay
PACKS := $(CARGO_TARGET_DIR)/packs
GUESTS := github hello hostile hubspot relay shopify stripe

# With `TESTS=all`, a test that would be left out because this machine lacks something (Node.js, moto_server, a browser) fails.
export TESTS ?=

# Seconds that each benchmark measures.
SECONDS ?= 10

.PHONY: help
help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install what is missing (Debian, Ubuntu), or say what to do
	@.ci/setup

.PHONY: build
build: setup ## Build the host
	cargo build --locked --package forebay

.PHONY: guests
guests: build ## Build the example packs
	@mkdir -p $(PACKS)
	@for guest in $(GUESTS); do \
	  $(FOREBAY) pack build guest-examples/$$guest --output $(PACKS)/$$guest.fpk --target-directory $(CARGO_TARGET_DIR)/guests; done
	@.ci/js-guest $(FOREBAY) $(PACKS)/js-hello.fpk

.PHONY: demo
demo: guests ## Watch deliveries go through, and survive a kill (STAY=1 keeps serving)
	@$(FOREBAY) demo --pack $(PACKS)/github.fpk $(if $(STAY),--stay)

# Before the guests: one of them is built with what only the tests need.
.PHONY: test-setup
test-setup:
	@.ci/setup tests

.PHONY: test
test: test-setup guests ## Run every test
	cargo test --locked --workspace
	cd guest-examples && cargo test --locked --workspace

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all
	cd sdk && cargo fmt --all
	cd guest-examples && cargo fmt --all

.PHONY: lint
lint: setup ## Check the format and the lints
	cargo fmt --all --check
	cd sdk && cargo fmt --all --check
	cd guest-examples && cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings
	cd guest-examples && cargo clippy --locked --workspace --all-targets -- --deny warnings

.PHONY: tidy
tidy: ## Check the structure: imports, sizes, docs, what may not be duplicated
	cargo test --locked --package forebay-tests --test tidy

.PHONY: deny
deny: ## Check licences and advisories, where cargo-deny is installed
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check; \
	else echo "cargo-deny is not installed: skipped (cargo install cargo-deny)"; fi

.PHONY: check
check: lint test deny ## All of it: what CI runs (TESTS=all: no test may be left out)

.PHONY: bench
bench: guests ## Measure intake, flow, the queue alone and guests (SECONDS=10)
	cargo build --locked --release --package forebay
	@for bench in "intake --baseline" "intake" "flow" "flow --deliver"; do \
	  $(CARGO_TARGET_DIR)/release/forebay bench $$bench --seconds $(SECONDS) --pack $(PACKS)/github.fpk; done
	@for bench in "drain --items 50000" "claim --rows 1000,20000"; do \
	  $(CARGO_TARGET_DIR)/release/forebay bench $$bench; done
	@$(CARGO_TARGET_DIR)/release/forebay bench guest --pack $(PACKS)/github.fpk --hostile $(PACKS)/hostile.fpk --seconds $(SECONDS)

.PHONY: drr-long
drr-long: ## Hold fair sharing against its bounds for long (CONFIGURATIONS=100000)
	FOREBAY_DRR_CONFIGURATIONS=$(or $(CONFIGURATIONS),100000) cargo test --locked --package forebay --lib lanes::
