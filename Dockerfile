# syntax=docker/dockerfile:1

# One static binary and its hook helper on nothing. docker-bake.hcl builds it for
# several machines. The compiler runs on the building machine and cross-compiles.
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS TARGETARCH VERSION=dev
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go build -trimpath -buildvcs=false -ldflags="-s -w -X main.version=$VERSION" -o /out/usr/local/bin/ ./cmd/aep-wrap ./cmd/aep-hook \
 && mkdir -m 1777 /out/tmp && mkdir -p -m 0700 /own/home/aep/.aep

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /
COPY --from=build --chown=65532:65532 /own/home/aep /home/aep
COPY LICENSE /LICENSE
ENV HOME=/home/aep PATH=/usr/local/bin
USER 65532:65532
WORKDIR /home/aep
ARG VERSION=dev REVISION=unknown
LABEL org.opencontainers.image.title="aep-wrap" \
      org.opencontainers.image.description="Tells what a coding agent does as Agent Event Protocol events" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
# The collector, serve's health, its hook port: none is open unless it is asked for.
EXPOSE 8787 9464
# A subcommand makes it a collector, a sidecar or an init container that puts its
# binaries into an agent's: deploy/ has each. None is the default, for whoever
# collects for other machines must say how that is protected.
# No HEALTHCHECK: there is no one command that is healthy for all of them, and
# Kubernetes asks /healthz and /readyz itself; deploy/compose has one for each.
ENTRYPOINT ["/usr/local/bin/aep-wrap"]
CMD ["--help"]
