# The image of Gatepost: the binary with its libraries on an otherwise empty root file system, without a shell.
#
#   docker build --tag gatepost .
#
# It runs as user 65532, also with a read-only root file system; it writes to /var/lib/gatepost only. The configuration is
# /etc/gatepost/gatepost.yaml, in a folder that is mounted.

# Debian 12 or newer with Rust; .dockerignore leaves rust-toolchain.toml out, so that rustup downloads no other toolchain.
ARG RUST=rust:1.95-bookworm
FROM ${RUST} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends binutils ca-certificates cmake curl g++ gcc make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
# The command that builds, and the binary that it makes. `make release` builds twice, with a profile of calls. For a quick
# image: --build-arg COMMAND="cargo build --locked --release --bin gatepost" --build-arg BINARY=target/release/gatepost
ARG COMMAND="make release"
ARG BINARY=target/pgo/gatepost
RUN ${COMMAND} && config/image/assemble "${BINARY}" /image

FROM scratch
COPY --from=build /image/ /
# Before a volume is mounted here, and where none is.
COPY --from=build --chown=65532:65532 /image/var/lib/gatepost /var/lib/gatepost
ARG VERSION=0.1.0
ARG REVISION=
ARG CREATED=
LABEL org.opencontainers.image.title="Gatepost" \
      org.opencontainers.image.description="One endpoint in front of many AI agents" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
# By number, so that Kubernetes can check that it is not root.
USER 65532:65532
WORKDIR /var/lib/gatepost
# Huge pages of the allocator hold some 25 MiB that are not used.
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt MIMALLOC_ALLOW_THP=0
EXPOSE 8080 9902
STOPSIGNAL SIGTERM
# Asks whether the gateway is alive, and not whether it is ready: some orchestrators replace an unhealthy container, and a
# source that is down stays down.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["/usr/bin/gatepost", "health", "--live", "--config", "/etc/gatepost/gatepost.yaml"]
ENTRYPOINT ["/usr/bin/gatepost"]
CMD ["run", "--config", "/etc/gatepost/gatepost.yaml"]
