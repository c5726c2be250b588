#!/bin/sh
# Makes src/generated from proto/. With --check: fails if what is committed differs.
set -eu
cd "$(dirname "$0")/.."
