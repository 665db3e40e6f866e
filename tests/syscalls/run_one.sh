#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_one.sh BAILEY PLATFORM PROGRAM
# Runs PROGRAM on the host and in the sandbox and compares standard output and exit status.
set -u
bailey=$1 platform=$2 program=$3
dir=$(dirname "$program")
limit=60

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$work/cwd"
# The same environment and an empty working directory on both sides.
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

(cd "$work/cwd" && exec env -i PATH=$path HOME=/ LANG=C.UTF-8 TERM=dumb USER=test \
    timeout -k 5 $limit "$program") > "$work/host.out" 2> "$work/host.err" < /dev/null
host=$?
if [ $host -eq 124 ] || [ $host -eq 137 ]; then
    echo "the program doesn't end on the host"; tail -n 20 "$work/host.out" "$work/host.err"; exit 1
fi

(cd / && exec "$bailey" --platform="$platform" --log "$work/log" do --cwd /tmp --timeout ${limit}s \
    --env HOME=/ --env LANG=C.UTF-8 --env TERM=dumb --env USER=test --mount "$dir:$dir" \
    -- "$program") > "$work/guest.out" 2> "$work/guest.err" < /dev/null
guest=$?

failed=0
if ! cmp -s "$work/host.out" "$work/guest.out"; then
    echo "output differs: host (-) and $platform (+)"
    diff -u "$work/host.out" "$work/guest.out" | head -n 60
    failed=1
fi
if [ $host -ne $guest ]; then
    echo "exit status: host $host, $platform $guest"
    failed=1
fi
# A report of a sanitizer fails the test whatever the guest saw.
if grep -qE 'Sanitizer|runtime error:|assertion failed' "$work/log" "$work/guest.err" 2> /dev/null; then
    echo "a report in the log"
    failed=1
fi
if [ $failed -ne 0 ]; then
    echo "--- standard error of the sandbox"; tail -n 20 "$work/guest.err"
    echo "--- log"; tail -n 40 "$work/log" 2> /dev/null
fi
exit $failed
