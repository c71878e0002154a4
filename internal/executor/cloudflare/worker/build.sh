#!/bin/sh
# Builds the Worker into ../embedded/worker.js, with exactly the packages that package-lock.json names. It
# needs Node.js 20 or later with npm; nothing else in this repository does.
set -eu
cd "$(dirname "$0")"
if ! command -v npm >/dev/null; then
	echo "build the Cloudflare Worker: npm is not installed: install Node.js 20 or later (https://nodejs.org)" >&2
	exit 1
fi
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
npm run --silent check
npm run --silent build
