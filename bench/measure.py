#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures bailey beside the host and, where it's installed, runsc; prints one table.

Programs of bench/*_bench.c print one number, nanoseconds for one operation. Commands are timed from start
to end. Every figure is the median of several runs, and the sides take turns, so that drift hits all.
"""
import argparse
import glob
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS = 3
COMMANDS = {
    'start_true': (['/bin/true'], 15),
    'import_numpy': (['/usr/bin/python3', '-c', 'import numpy'], 5),
}


def bounds():
    """name -> (limit, is_ratio)"""
    result = {}
    with open(os.path.join(HERE, 'bounds.txt'), encoding='utf-8') as f:
        for line in f:
            words = line.split('#')[0].split()
            if words:
                result[words[0]] = (float(words[1]), words[2] == 'x')
    return result


def run(command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def timed(command):
    begin = time.monotonic_ns()
    done = run(command)
    if done.returncode != 0:
        raise RuntimeError(f'{" ".join(command)}: status {done.returncode}: {done.stderr.strip()[-300:]}')
    return time.monotonic_ns() - begin


def printed(command):
    done = run(command)
    if done.returncode != 0:
        raise RuntimeError(f'{" ".join(command)}: status {done.returncode}: {done.stderr.strip()[-300:]}')
    return float(done.stdout.split()[-1])


def measure(sides, command, one, rounds):
    """side -> median, or an exception"""
    values = {side: [] for side in sides}
    failed = {}
    for _ in range(rounds):
        for side, prefix in sides.items():
            if side in failed:
                continue
            try:
                values[side].append(one(prefix + command))
            except (RuntimeError, ValueError, IndexError) as error:
                failed[side] = error
    return {side: failed.get(side) or statistics.median(values[side]) for side in sides}


def children(pid):
    out = []
    for task in glob.glob(f'/proc/{pid}/task/*/children'):
        try:
            with open(task, encoding='ascii') as f:
                for child in f.read().split():
                    out += [int(child)] + children(int(child))
        except OSError:
            pass
    return out


def read_field(path, field):
    total = 0
    try:
        with open(path, encoding='utf-8', errors='replace') as f:
            for line in f:
                if line.startswith(field):
                    total += int(line.split()[1])
    except OSError:
        pass
    return total


def switches(pids):
    total = 0
    for pid in pids:
        for status in glob.glob(f'/proc/{pid}/task/*/status'):
            total += read_field(status, 'voluntary_ctxt_switches')
    return total


def idle(bailey):
    """(KiB PSS of bailey's own processes, wake-ups of all of the sandbox in 10 s)"""
    with subprocess.Popen([bailey, 'do', '--', '/bin/sleep', '30'], stdin=subprocess.DEVNULL) as sandbox:
        time.sleep(2)
        pids = [sandbox.pid] + children(sandbox.pid)
        own = []
        for pid in pids:
            with open(f'/proc/{pid}/comm', encoding='utf-8') as f:
                if f.read().startswith('bailey'):
                    own.append(pid)
        pss = sum(read_field(f'/proc/{pid}/smaps_rollup', 'Pss:') for pid in own)
        before = switches(pids)
        time.sleep(10)
        after = switches(pids)
        sandbox.terminate()
    return pss, after - before


def build(work):
    os.makedirs(work, exist_ok=True)
    programs = {}
    for source in sorted(glob.glob(os.path.join(HERE, '*_bench.c'))):
        name = os.path.basename(source)[:-len('_bench.c')]
        programs[name] = os.path.join(work, name)
        subprocess.run(['gcc', '-O2', '-D_GNU_SOURCE', '-pthread', source, '-o', programs[name], '-lm'], check=True)
    return programs


def show(value):
    if isinstance(value, Exception):
        return 'failed'
    return f'{value:,.0f}'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--bailey', required=True)
    parser.add_argument('--work', required=True)
    parser.add_argument('--check', action='store_true')
    parser.add_argument('--only', help='comma-separated names')
    options = parser.parse_args()
    bailey = os.path.abspath(options.bailey)
    work = os.path.abspath(options.work)
    programs = build(work)
    sides = {'host': [], 'bailey': [bailey, 'do', '--mount', f'{work}:{work}', '--']}
    if shutil.which('runsc') and os.geteuid() == 0:
        sides['runsc'] = ['runsc', '--platform=systrap', '--network=none', 'do']
    limits = bounds()
    only = set(options.only.split(',')) if options.only else None
    bad = []

    print(f'{"":16}' + ''.join(f'{side + " ns":>16}' for side in sides) + f'{"ratio":>9}{"bound":>10}')
    work_list = [(n, c, timed, r) for n, (c, r) in COMMANDS.items()]
    work_list += [(n, [p], printed, ROUNDS) for n, p in programs.items()]
    for name, command, one, rounds in work_list:
        if only and name not in only:
            continue
        result = measure(sides, command, one, rounds)
        failed = [e for e in result.values() if isinstance(e, Exception)]
        ratio = None if failed else result['bailey'] / result['host']
        limit, is_ratio = limits.get(name, (None, True))
        value = ratio if is_ratio else result['bailey']
        broken = bool(isinstance(result['bailey'], Exception) or failed and is_ratio or
                      limit is not None and value > limit)
        bound = '' if limit is None else f'{limit:g}{"x" if is_ratio else " ns"}'
        print(f'{name:16}' + ''.join(f'{show(result[s]):>16}' for s in sides) +
              (f'{ratio:9.2f}' if ratio else f'{"":9}') + f'{bound:>10}' + ('  BEYOND' if broken else ''), flush=True)
        for error in failed:
            print(f'    {error}')
        if broken:
            bad.append(name)

    if not only or 'idle' in only:
        pss, wakes = idle(bailey)
        print(f'idle: {pss} KiB PSS of bailey (bound {limits["idle_pss_kib"][0]:g}), '
              f'{wakes} wake-ups in 10 s (bound {limits["idle_wakeups"][0]:g})')
        if pss == 0 or pss > limits['idle_pss_kib'][0]:
            bad.append('idle_pss_kib')
        if wakes > limits['idle_wakeups'][0]:
            bad.append('idle_wakeups')
    if bad:
        print('beyond their bounds: ' + ', '.join(bad))
    return 1 if bad and options.check else 0


sys.exit(main())
