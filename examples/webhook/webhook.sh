#!/bin/sh
# Ends the game $1. $SANDBOX_RECONCILER_TOKEN_HEADER is a file of mode 0600 with one line,
# "Authorization: Bearer <token>", so that no list of processes shows the token.
set -eu

curl --silent --show-error --fail-with-body --retry 5 --retry-all-errors --max-time 30 \
  --header "@$SANDBOX_RECONCILER_TOKEN_HEADER" \
  --json "{
    \"type\": \"game.finished\",
    \"timestamp\": \"$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)\",
    \"data\": {\"environment_id\": \"$1\"}
  }" \
  "$SANDBOX_RECONCILER_URL/v1/conditions"
