# SPDX-License-Identifier: Apache-2.0
# Helpers of the end-to-end scripts: one line for each check, and a failure count.
# shellcheck shell=sh
failures=0
out=$WORK/.out
err=$WORK/.err
log=$WORK/.log

bailey() {
    "$BAILEY" --platform="$PLATFORM" --log "$log" "$@"
}

pass() {
    echo "ok    $*"
}

fail() {
    echo "FAIL  $*"
    failures=$((failures + 1))
}

# Nothing of a sandbox is left: processes of ours, cgroups.
nothing_left() {
    left=
    tries=0
    while [ $tries -lt 30 ]; do
        left=$(ps -eo pid,stat,uid,args | awk -v b="$(dirname "$BAILEY")/" '$2 !~ /Z/ && index($0, b) && !/awk|_e2e|run_script/ {print}'
               ls -d /sys/fs/cgroup/bailey-* /sys/fs/cgroup/*/bailey-* 2> /dev/null || true)
        [ -n "$left" ] || return 0
        sleep 0.1
        tries=$((tries + 1))
    done
    fail "$1: left behind: $left"
    return 1
}

# refuses NAME STATUS PATTERN ARGUMENT...: bailey gives that status and one line that matches, and leaves
# nothing behind.
refuses() {
    name=$1 want=$2 pattern=$3
    shift 3
    status=0
    bailey "$@" > "$out" 2> "$err" < /dev/null || status=$?
    if [ $status -ne "$want" ]; then
        fail "$name: status $status instead of $want: $(head -c 300 "$err")"
    elif [ "$(wc -l < "$err")" -ne 1 ] || ! grep -qE "^bailey: .*($pattern)" "$err"; then
        fail "$name: not one clear line: $(head -c 500 "$err")"
    elif nothing_left "$name"; then
        pass "$name: $(cat "$err")"
    fi
}

# gives NAME STATUS OUTPUT ARGUMENT...: bailey do ARGUMENT gives that status and standard output.
gives() {
    name=$1 want=$2 expected=$3
    shift 3
    status=0
    bailey do "$@" > "$out" 2> "$err" < /dev/null || status=$?
    if [ $status -ne "$want" ] || [ "$(cat "$out")" != "$expected" ]; then
        fail "$name: status $status (wanted $want), output: $(head -c 300 "$out") $(head -c 300 "$err")"
    else
        pass "$name"
    fi
}

finish() {
    rm -f "$out" "$err"
    if [ $failures -ne 0 ]; then
        echo "--- log"; tail -n 40 "$log" 2> /dev/null
        echo "$failures failed"
        exit 1
    fi
    exit 0
}
