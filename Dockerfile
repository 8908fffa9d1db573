# syntax=docker/dockerfile:1
# The version is rust-toolchain.toml's. That file stays outside, or rustup would fetch the lints' components too.
FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /build
# The queries were checked when .sqlx/ was written; no database is asked here.
ENV SQLX_OFFLINE=true

# Kafka's client is built from C.
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ make \
    && rm -rf /var/lib/apt/lists/*

# The dependencies in a layer of their own: it is built again only when Cargo.lock changes.
COPY Cargo.toml Cargo.lock sqlx.toml ./
RUN mkdir src \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs \
    && cargo build --release --locked --features kafka \
    && rm -r src

COPY migrations migrations
COPY .sqlx .sqlx
COPY src src
# Newer than the empty ones above, whatever the time in the clone says.
RUN touch src/main.rs src/lib.rs \
    && cargo build --release --locked --features kafka --bin oncebook

# glibc, certificates and an account without rights; no shell.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /build/target/release/oncebook /usr/local/bin/oncebook
# The number of `nonroot`, so that an orchestrator can tell that it is not root.
USER 65532
# Inside a container the loopback is nobody's; publish the port where it should be reachable.
ENV ONCEBOOK_LISTEN=0.0.0.0:8080
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["/usr/local/bin/oncebook", "healthcheck"]
ENTRYPOINT ["/usr/local/bin/oncebook"]
CMD ["serve", "--roles", "api,janitor"]
