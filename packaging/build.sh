#!/bin/sh
# Builds everything into dist/: the keeper (static), the addon, the compiled TypeScript and its three bundles.
# usage: packaging/build.sh      CC and MUSL_CC name other compilers.
set -eu
cd "$(dirname "$0")/.."
CC=${CC:-cc}
MUSL_CC=${MUSL_CC:-musl-gcc}
MACHINE=$($CC -dumpmachine)
WARN='-std=gnu11 -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror'
mkdir -p dist/bin dist/lib/holdfast
rm -f dist/.built

# musl-gcc has no kernel headers of its own: they come last, after musl's.
$MUSL_CC -static -O2 $WARN -idirafter /usr/include -idirafter "/usr/include/$MACHINE" \
  src/keeper/*.c -o dist/bin/holdfast-monitor.new -Wl,-z,noseparate-code -s
mv dist/bin/holdfast-monitor.new dist/bin/holdfast-monitor
$CC -O2 -shared -fPIC $WARN -Inode_modules/node-api-headers/include src/native/addon.c -o dist/lib/holdfast/addon.node.new
mv dist/lib/holdfast/addon.node.new dist/lib/holdfast/addon.node

node_modules/.bin/tsc -p tsconfig.json
node packaging/bundle.mjs
touch dist/.built
