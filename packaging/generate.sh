#!/bin/sh
# Makes src/generated from proto/. With --check: fails if what is committed differs.
# Needs `capnp` (Debian: capnproto) and the development packages; a build needs neither.
set -eu
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

node_modules/.bin/esbuild proto/capnp-table.ts --bundle --platform=node --format=cjs --log-level=warning \
  --outfile="$scratch/capnp-table.cjs"
mkdir "$scratch/generated"
capnp compile -o- --src-prefix=proto proto/conmon.capnp proto/holdfast.capnp > "$scratch/request"
node "$scratch/capnp-table.cjs" "$scratch/generated" < "$scratch/request"

if [ "${1:-}" = --check ]; then
  diff -ru src/generated "$scratch/generated" || {
    echo 'src/generated is not what proto/ gives: run packaging/generate.sh' >&2
    exit 1
  }
else
  rm -rf src/generated
  cp -r "$scratch/generated" src/generated
fi
