# Two stages: the toolchain stays behind. Build: docker build -t delayd .
FROM rust:1-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock build.rs ./
COPY .cargo .cargo
COPY config config
COPY migrations migrations
# The dependencies in a layer of their own, so that a change of the sources does not build them again.
RUN mkdir src benches && touch src/lib.rs benches/parts.rs && printf 'fn main() {}\n' > src/main.rs && cargo build --release --locked && rm -r src
COPY src src
RUN touch src/lib.rs src/main.rs && cargo build --release --locked

FROM debian:bookworm-slim
# Certificates for https callbacks; a user of its own.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --create-home --home-dir /var/lib/delayd delayd
COPY --from=build /src/target/release/delayd /usr/local/bin/delayd
USER delayd
WORKDIR /var/lib/delayd
VOLUME /var/lib/delayd
# The environment wins over --config files: change these two with -e or --set.
ENV DELAYD__HTTP__BIND=0.0.0.0:7799 DELAYD__STORE__EMBEDDED__PATH=/var/lib/delayd/delayd.db
EXPOSE 7799
# SIGTERM drains; give it longer than shutdown.grace (20 s) before the kill.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["delayd", "healthcheck"]
ENTRYPOINT ["delayd"]
CMD ["serve"]
