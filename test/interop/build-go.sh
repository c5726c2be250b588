#!/bin/sh
# Builds the referees written in Go into .cache/interop/bin. What is there and up to date is skipped.
# usage: test/interop/build-go.sh [NAME…]      all of them: crictl kubectl driver yardstick monitorclient
set -eu
cd "$(dirname "$0")/../.."
out=$PWD/.cache/interop/bin
critools=v1.37.0

die() { echo "build-go: $*" >&2; exit 1; }
say() { echo "build-go: $*" >&2; }

command -v go >/dev/null ||
  die "Go is missing: the interop tests and the streaming benchmarks need Go >= 1.26 (the Debian 12 package is too old; install a release of Go and put it into \$PATH)"
version=$(go env GOVERSION)
minor=${version#go1.}
minor=${minor%%[!0-9]*}
# From 1.21 on, go fetches the toolchain that go.mod asks for.
[ "${minor:-0}" -ge 21 ] || die "$version is too old: Go >= 1.26 is needed"

# What a program is made of, as one hash.
inputs() { # NAME
  folder=test/interop/go/$1
  [ -d "$folder" ] || folder=
  cat test/interop/build-go.sh test/interop/go/go.mod test/interop/go/go.sum ${folder:+"$folder"/*.go} | sha256sum
}

build() { # NAME
  package=./$1
  flags='-s -w'
  case $1 in
    crictl)
      package=sigs.k8s.io/cri-tools/cmd/crictl
      flags="$flags -X sigs.k8s.io/cri-tools/pkg/version.Version=$critools"
      ;;
    kubectl)
      kubernetes=$(cd test/interop/go && go list -m -f '{{.Version}}' k8s.io/kubectl)
      flags="$flags -X k8s.io/component-base/version.gitVersion=v1.${kubernetes#v0.}"
      ;;
  esac
  (cd test/interop/go && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "$flags" -o "$out/$1" "$package")
}

mkdir -p "$out"
[ $# -gt 0 ] || set -- crictl kubectl driver yardstick monitorclient
for name in "$@"; do
  wanted=$(inputs "$name")
  [ -x "$out/$name" ] && [ "$(cat "$out/.$name" 2>/dev/null)" = "$wanted" ] && continue
  say "building $name"
  build "$name"
  echo "$wanted" >"$out/.$name"
done
