#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_kill.py BIN PLATFORM: I8. Every process of a sandbox is killed in turn. Each but a guest's own ends all of
it within seconds, with a reason, and nothing is left: processes, mounts, cgroups, sockets, files. The death of
a guest's process ends that process only; in the end nothing is left either."""
import os
import signal
import subprocess
import sys
import time

from drills_lib import check, comm, descendants, fail, finish, temporary_dir, wait_for

BIN, PLATFORM = sys.argv[1:3]
SCRIPT = 'sleep 1000 & sleep 1000 & echo up; wait; echo waited; exec sleep 1000'


def read(path):
    try:
        with open(path) as f:
            return f.read()
    except OSError:
        return ''


def cgroups():
    return sorted(base for base, dirs, _ in os.walk('/sys/fs/cgroup') if 'bailey' in os.path.basename(base))


def host_state():
    temporary = sorted(n for d in ('/tmp', '/dev/shm', '/run') for n in os.listdir(d)
                       if 'bailey' in n and not n.startswith('bailey-drill'))
    return {'mounts': read('/proc/self/mountinfo'), 'cgroups': cgroups(), 'sockets': read('/proc/net/unix').count('\n'),
            'files': temporary, 'shm': read('/proc/sysvipc/shm')}


def start(directory):
    log = os.path.join(directory, 'log')
    if os.path.exists(log):
        os.unlink(log)
    cli = subprocess.Popen([os.path.join(BIN, 'bailey'), f'--platform={PLATFORM}', '--log', log, 'do', '--cwd', '/',
                            '--memory', '256m', '--pids', '100', '--', 'sh', '-c', SCRIPT],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if cli.stdout.readline() != 'up\n':
        fail('the sandbox did not start')
    wait_for(lambda: len(descendants(cli.pid)) == COUNT.get('n'), 1)
    return cli, log


COUNT = {}


def names(cli):
    """Its processes in order of birth: (pid, name)."""
    return [(pid, comm(pid)) for pid in sorted(descendants(cli.pid))]


def one(directory, index, name):
    before = host_state()
    cli, log = start(directory)
    processes = names(cli)
    label = f'{name} (process {index})'
    if index >= 0:
        if index >= len(processes):
            cli.kill()
            cli.wait()
            return
        pid = processes[index][0]
    else:
        pid = cli.pid
    begin = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    goes_on = False
    try:
        _, err = cli.communicate(timeout=3)
    except subprocess.TimeoutExpired:
        goes_on = True
        cli.kill()
        _, err = cli.communicate()
    took = time.monotonic() - begin
    is_own = name in ('bailey', 'bailey-monitor', 'bailey-gofer', 'bailey-sentry')
    if is_own:
        check(not goes_on and took < 3, f'{label}: all of it ends in {took:.2f} s', f'still running after {took:.1f} s')
        reason = wait_for(lambda: read(log).strip(), 5)
        check(any(w in reason for w in ('killed', 'ended', 'gone')), f'{label}: a reason in the log', reason)
        if name != 'bailey':
            check(cli.returncode == 125 and err.count('\n') == 1, f'{label}: status 125, one line', (cli.returncode, err))
    else:
        print(f'      {label}: {"goes on" if goes_on else f"ends with {cli.returncode} " + err.strip()}')
    gone = wait_for(lambda: not [p for p, _ in processes if comm(p) and os.path.exists(f'/proc/{p}/exe')
                                 and read(f'/proc/{p}/stat').rsplit(')', 1)[-1].split()[:1] not in (['Z'], ['X'], [])], 5)
    check(gone, f'{label}: no process is left', names(cli))
    after = host_state()
    if after != before:
        wait_for(lambda: host_state() == before, 2)
        after = host_state()
    for key, value in before.items():
        if after[key] != value:
            fail(f'{label}: left {key}: {after[key]} instead of {value}')


def main():
    directory = temporary_dir()
    cli, _ = start(directory)
    time.sleep(0.3)
    processes = names(cli)
    COUNT['n'] = len(processes)
    cli.kill()
    cli.communicate()
    time.sleep(0.5)
    print('      ' + ' '.join(name for _, name in processes))
    one(directory, -1, 'bailey')
    for index, (_, name) in enumerate(processes):
        one(directory, index, name)
    finish()


main()
