# Two stages, so that the image holds no toolchain. Build:
#   docker build --build-arg COMMIT=$(git rev-parse --short=12 HEAD) -t delayd .
FROM rust:1-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock build.rs ./
COPY .cargo .cargo
COPY config config
COPY migrations migrations
COPY crates/bench/Cargo.toml crates/bench/
COPY crates/wire/Cargo.toml crates/wire/
# The dependencies are a layer of their own, so a change of the sources does not rebuild them.
RUN mkdir src benches crates/bench/src crates/wire/src \
 && touch src/lib.rs crates/wire/src/lib.rs benches/parts.rs \
 && printf 'fn main() {}\n' | tee src/main.rs > crates/bench/src/main.rs \
 && cargo build --profile dist --features otlp --locked && rm -r src
COPY scripts/dist scripts/split-debug scripts/
COPY crates crates
COPY src src
ARG COMMIT=unknown
RUN touch crates/bench/src/main.rs crates/wire/src/lib.rs src/lib.rs src/main.rs \
 && DELAYD_COMMIT=$COMMIT scripts/dist /dist

FROM debian:bookworm-slim
LABEL org.opencontainers.image.title="delayd" \
      org.opencontainers.image.description="A standalone HTTP service for delay tasks: accept now, call back at the due moment" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
# Certificates for https callbacks, and a user without a shell that owns the folder of the store.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
 && groupadd --gid 10001 delayd \
 && useradd --uid 10001 --gid 10001 --no-log-init --no-create-home --home-dir /var/lib/delayd --shell /usr/sbin/nologin delayd \
 && install -d -o 10001 -g 10001 -m 0750 /var/lib/delayd
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/delayd/
COPY --from=build /dist/delayd /dist/delayd-bench /usr/local/bin/
# Numbers, because Kubernetes (runAsNonRoot) cannot tell whether a name is root.
USER 10001:10001
WORKDIR /var/lib/delayd
# delayd writes nowhere else, so the root file system may be read-only.
VOLUME /var/lib/delayd
# The environment overrides --config files: change these two with -e or --set.
ENV DELAYD__HTTP__BIND=0.0.0.0:7799 DELAYD__STORE__EMBEDDED__PATH=/var/lib/delayd/delayd.db
EXPOSE 7799
# SIGTERM drains: wait at least shutdown.delay (0 s) plus 30 s before the kill.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["delayd", "healthcheck"]
ENTRYPOINT ["delayd"]
CMD ["serve"]
