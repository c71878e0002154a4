#!/bin/sh
# Builds the programs that run inside of containers, for every architecture that an engine may have:
# the guest into embedded/, the gateway into ../gateway/embedded/.
set -eu
cd "$(dirname "$0")"
build() { # architecture, file, package
	CGO_ENABLED=0 GOOS=linux GOARCH=$1 \
		go build -trimpath -buildvcs=false -ldflags "-s -w -buildid=" -o "$2" "$3"
}
for arch in amd64 arm64; do
	build $arch "embedded/guest-linux-$arch" ./cmd/guest
	build $arch "../gateway/embedded/gateway-linux-$arch" ../gateway/cmd/gateway
done
