#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_script.sh BIN_DIR PLATFORM self|user SCRIPT
# Runs an end-to-end script with BAILEY, PLATFORM, WORK and LIB set (own_build: SOURCE, too), in WORK, an
# empty directory. `user`: as nobody where we are root (with copies that nobody can read); where we aren't,
# `self` is that already.
set -eu
bin=$(cd "$1" && pwd) platform=$2 who=$3 script=$4
here=$(cd "$(dirname "$0")" && pwd)

top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$top"
mkdir "$top/bin" "$top/work"
cp "$bin"/bailey* "$top/bin/"
cp "$here/lib.sh" "$here/$(basename "$script")" "$top/bin/"
cp "$here"/*.py "$top/bin/" 2> /dev/null || true
chmod -R go+rX "$top/bin"
if [ "$(basename "$script")" = own_build_e2e ]; then
    mkdir "$top/src"
    tar -C "$here/../.." --exclude=./build --exclude=./.git -cf - . | tar -C "$top/src" --no-same-owner -xf -
    chmod -R go+rX "$top/src"
fi

if [ "$who" = user ] && [ "$(id -u)" -ne 0 ]; then
    echo "the same as self: already an ordinary user"
    exit 0
fi
as=
if [ "$who" = user ]; then
    chown 65534:65534 "$top/work"
    as="setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --"
fi
cd "$top/work"
# shellcheck disable=SC2086
$as env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$top/work" \
    LANG=C.UTF-8 TERM=dumb BAILEY="$top/bin/bailey" PLATFORM="$platform" WORK="$top/work" LIB="$top/bin/lib.sh" \
    SOURCE="$top/src" \
    "$top/bin/$(basename "$script")" &
child=$!
status=0
wait $child || status=$?
exit $status
