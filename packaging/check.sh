#!/bin/sh
# The static part: format, lint, types, unused code, generated code. Needs packaging/prepare.mjs check.
set -eu
cd "$(dirname "$0")/.."
bin=node_modules/.bin
echo 'check: format'; $bin/prettier --check --log-level warn .
echo 'check: lint'; $bin/oxlint --type-aware src test proto
echo 'check: types'; $bin/tsc --noEmit
echo 'check: unused'; $bin/knip
echo 'check: generated'; sh packaging/generate.sh --check
