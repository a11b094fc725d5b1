# ganger in a container: `docker build -t ganger .`, by BuildKit, Docker's own builder since 23.0.
#
#   runtime  the daemon alone, to build an image with your own workers on (the default)
#   sample   the daemon with the Python worker of samples/python, for docker-compose.yml

FROM rust:1.95.0-slim-bookworm AS build
# make, perl and a C++ compiler build librdkafka and OpenSSL; the C of SQLite needs no more.
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY Cargo.toml Cargo.lock build.rs README.md ./
COPY src src
COPY crates crates
COPY proto-spec proto-spec
COPY config config
COPY templates templates
COPY worker-sdk worker-sdk
# Cargo.toml names these; the daemon does not need what is in them.
COPY benches benches
COPY samples/producers/rust samples/producers/rust
COPY tests tests
# What is downloaded and what is built stays for the next build; the caches are no part of the image.
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --profile dist --locked --features vendored-openssl --bin ganger \
    && install -m 755 target/dist/ganger /usr/local/bin/ganger

FROM debian:bookworm-20250811-slim AS base
# ca-certificates: who may have signed a broker's certificate, where a source has no ca_file.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/ganger --create-home ganger
COPY --from=build /usr/local/bin/ganger /usr/local/bin/ganger
USER ganger
WORKDIR /var/lib/ganger
ENV GANGER_CONFIG=/etc/ganger/ganger.toml
# Fails when a thread of the daemon no longer turns, not when its broker is away: that mends itself.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 CMD ["ganger", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["ganger"]
CMD ["run"]

FROM base AS sample
USER root
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-msgpack \
    && rm -rf /var/lib/apt/lists/*
COPY samples/python/worker.py /srv/worker/worker.py
COPY samples/docker/*.toml /etc/ganger/
USER ganger

FROM base AS runtime
