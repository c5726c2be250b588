#!/bin/sh
# Builds the C++ peers into a folder, unless they are there already. Needs Debian's capnproto, libcapnp-dev and g++.
# usage: build.sh DIRECTORY
set -eu
sources=$(cd "$(dirname "$0")" && pwd)
proto=$(cd "$sources/../../../proto" && pwd)
mkdir -p "$1"
cd "$1"

stamp=$(cat "$sources"/* "$proto/conmon.capnp" | sha256sum)
if [ -f built ] && [ "$(cat built)" = "$stamp" ]; then exit 0; fi

cp "$proto/conmon.capnp" .
# The layout of conmon-rs up to 0.8, under ids and a namespace of its own so that one program can have both.
sed -e 's/^@0x.*;$/@0xdc2f3bb0a93d1c7e;\nusing Cxx = import "\/capnp\/c++.capnp";\n$Cxx.namespace("old_layout");/' \
  -e 's/\(metadataOld @[0-9]* :\)Void/\1Data/' conmon.capnp > conmon08.capnp
capnp compile -oc++ conmon.capnp conmon08.capnp

build='g++ -std=c++17 -O1 -Wall -Wextra -I.'
$build -c conmon.capnp.c++ -o conmon.o &
$build -c conmon08.capnp.c++ -o conmon08.o
wait $!
libraries='-lcapnp-rpc -lcapnp -lkj-async -lkj'
$build "$sources/raw.c++" conmon.o -o raw $libraries &
$build "$sources/server.c++" conmon.o -o server $libraries
wait $!
$build "$sources/client.c++" conmon.o conmon08.o -o client $libraries
echo "$stamp" > built
