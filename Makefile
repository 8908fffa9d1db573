# The build needs no database: .sqlx/ holds what the checked queries know of it. Without this, a DATABASE_URL meant for
# `make dev` would be asked at compile time.
export SQLX_OFFLINE = true

# `make dev PROFILE=release` for figures; `make dev ARGS="--port 9000"` for arguments.
PROFILE ?= dev
ARGS ?=
# Not kafka-tls: it builds librdkafka with an OpenSSL of its own, some minutes more, and nothing of ours differs.
FEATURES = --features kafka
DOCUMENTS = target/documents

define PRINT_DOCUMENTS
mkdir -p $(DOCUMENTS)
cargo run $(FEATURES) -- openapi > $(DOCUMENTS)/openapi.json
cargo run $(FEATURES) -- asyncapi > $(DOCUMENTS)/asyncapi.json
cargo run $(FEATURES) -- asyncapi --schema > $(DOCUMENTS)/event.schema.json
endef

.PHONY: help setup dev test soak check prepare bench mutants openapi-lint schemathesis test-kafka-restart
.DEFAULT_GOAL := help

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: ## install what is missing (C compiler, Postgres); the others do it too
	@.ci/setup

dev: setup ## the whole service on 127.0.0.1:8080 with a Postgres of its own
	cargo run --profile $(PROFILE) -- dev $(ARGS)

test: setup ## every test (the ones on Kafka need Linux on x86-64 and Python; without: cargo test --all-targets)
	.ci/standard-webhooks >/dev/null
	.ci/kafka-broker
	cargo test --doc $(FEATURES)
	cargo test --all-targets $(FEATURES) $(ARGS)

soak: setup ## the long trials, in a release build, times held to their limits: some ten minutes on a quiet machine
	cargo test --release --test it soak:: -- --ignored --nocapture --test-threads=1 $(ARGS)

test-kafka-restart: setup ## a broker killed and started again under the service; building that broker takes ten minutes, once
	.ci/kafka-broker --durable
	cargo test $(FEATURES) --test it a_broker_killed_and_started_again -- --ignored --nocapture

check: setup ## format, lints, checked queries, drift of what is in openapi/, whether the mutants still apply
	cargo fmt --check
	.ci/mutants --apply
	cargo clippy --all-targets $(FEATURES) -- -D warnings
	.ci/sqlx-cli
	.ci/with-postgres cargo sqlx prepare --check -- --all-targets $(FEATURES)
	$(PRINT_DOCUMENTS)
	for name in openapi asyncapi event.schema; do diff -u openapi/$$name.json $(DOCUMENTS)/$$name.json || exit 1; done

prepare: setup ## regenerate .sqlx/ and openapi/
	.ci/sqlx-cli
	.ci/with-postgres cargo sqlx prepare -- --all-targets $(FEATURES)
	$(PRINT_DOCUMENTS)
	cp $(DOCUMENTS)/*.json openapi/

bench: setup ## bookings and replays a second, beside pgbench running the same statements
	cargo run --release -- bench $(ARGS)

mutants: setup ## breaks the service in many ways, one by one, and sees each caught by the conformance suite
	.ci/mutants $(ARGS)

openapi-lint: ## the rules of two public linters for openapi/openapi.json (needs Node.js)
	.ci/openapi-lint

schemathesis: setup ## sends what openapi/openapi.json allows, and what it does not (needs Python; ARGS=SECONDS)
	cargo build
	.ci/schemathesis $(ARGS)
