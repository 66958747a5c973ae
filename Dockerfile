# The gateway and nothing else: docker build --build-arg VERSION=dev -t ferrule .
#
# In a container 127.0.0.1 is the container's own. So this image listens where only
# --network host, or a file of yours with another address, lets anybody in, with a
# token. docs/how-to/install.md has the steps.
#
# The compiler's image is pinned by its digest, for all platforms: a tag can be moved.

FROM golang:1.26.8@sha256:0f063af2d465d8dcae54cce04278ada488b96f77b42449c8d071e47d016cc65a AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.stamped=$VERSION" -o root/usr/bin/ferrule ./cmd/ferrule
RUN mkdir -p root/etc/ferrule root/var/lib/ferrule && cp internal/ops/config/ferrule.yaml root/etc/ferrule/ && cp LICENSE root/

FROM scratch
COPY --from=build /src/root/usr /usr
COPY --from=build /src/root/etc /etc
COPY --from=build /src/root/LICENSE /LICENSE
COPY --from=build --chown=65532:65532 /src/root/var/lib/ferrule /var/lib/ferrule
ENV PATH=/usr/bin FERRULE_CONFIG=/etc/ferrule/ferrule.yaml FERRULE_DATA=/var/lib/ferrule
USER 65532:65532
VOLUME /var/lib/ferrule
EXPOSE 3377
ENTRYPOINT ["/usr/bin/ferrule"]
CMD ["up"]
