#!/bin/sh
# Builds the guest for every architecture that an engine may have, into embedded/.
set -eu
cd "$(dirname "$0")"
for arch in amd64 arm64; do
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch \
		go build -trimpath -buildvcs=false -ldflags "-s -w -buildid=" -o "embedded/guest-linux-$arch" ./cmd/guest
done
