# syntax=docker/dockerfile:1

# One static binary and its hook helper on nothing. Build for other machines
# with: docker buildx build --platform linux/amd64,linux/arm64 .
# The compiler runs on the building machine and cross-compiles.
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS TARGETARCH VERSION=dev
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go build -trimpath -buildvcs=false -ldflags="-s -w -X main.version=$VERSION" -o /out/usr/local/bin/ ./cmd/aep-wrap ./cmd/aep-hook \
 && mkdir -p -m 0700 /out/home/aep/.aep

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/usr/local/bin/ /usr/local/bin/
COPY --from=build --chown=65532:65532 /out/home/aep /home/aep
COPY LICENSE /LICENSE
ENV HOME=/home/aep PATH=/usr/local/bin
USER 65532:65532
WORKDIR /home/aep
# Alone, the image is a collector; name another subcommand to be something
# else. To wrap an agent, copy the two binaries into the agent's own image.
# A container's port reaches others: give it a token (AEP_TOKEN or AEP_TOKEN_FILE).
EXPOSE 8787
ENTRYPOINT ["/usr/local/bin/aep-wrap"]
CMD ["collect", "--listen", "0.0.0.0:8787"]
