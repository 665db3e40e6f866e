#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_acts.py BIN HELPERS PLATFORM [ACT...]: the acts of a hostile sentry (acts.def). Each is tried with all
protections, with each of its layers alone, and, as the control, without any of them, when it succeeds."""
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys

from drills_lib import Victim, check, descendants, fail, finish, loopback_up, ok, temporary_dir

HERE = os.path.dirname(os.path.abspath(__file__))
BIN, HELPERS, PLATFORM = sys.argv[1:4]
ONLY = sys.argv[4:]
REFUSED, SUCCEEDED = 40, 41
SHM_KEY = 0x6261696c


def read_acts():
    with open(os.path.join(HERE, 'acts.def')) as f:
        found = re.findall(r'^ACT\((\w+), ([A-Z ]+), ([A-Z ]+)\)', f.read(), re.M)
    names = lambda text: [n for n in text.split() if n != 'NONE']
    return [(number, name, names(layers), names(also))
            for number, (name, layers, also) in enumerate(found, 1)]


def read_holes():
    with open(os.path.join(HERE, '../../sentry/control/drill.h')) as f:
        return {name: 1 << int(bit) for name, bit in re.findall(r'DRILL_HOLE_(\w+) = 1 << (\d+)', f.read())}


HOLES = read_holes()


class Host:
    """What is planted on the host."""

    def __init__(self):
        self.dir = temporary_dir()
        self.secret = os.path.join(self.dir, 'secret')
        with open(self.secret, 'w') as f:
            f.write('PLANTED SECRET\n')
        os.chmod(self.secret, 0o600)
        os.chmod(self.dir, 0o755)
        loopback_up()
        self.tcp = socket.socket()
        self.tcp.bind(('127.0.0.1', 0))
        self.tcp.listen(100)
        self.name = f'bailey-drill-{os.getpid()}'
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind('\0' + self.name)
        self.unix.listen(100)
        subprocess.run(['ipcmk', '-M', '4096', '-p', '0666'], check=True, stdout=subprocess.DEVNULL)
        with open('/proc/sysvipc/shm') as f:
            self.shm_key = int(f.read().split('\n')[1].split()[0])
        self.victim = Victim()

    def fresh_victim(self):
        if not self.victim.alive() or self.victim.memory() != 'PLANTED!':
            self.victim.end()
            self.victim = Victim()


def run(host, number, holes, pid=None, address=None, keep=None):
    helper = os.path.join(HELPERS, 'drill_helper')
    argv = [os.path.join(BIN, 'bailey'), f'--platform={PLATFORM}', 'do', '--cwd', '/', '--',
            host.secret, str(pid or host.victim.pid), hex(address or host.victim.address),
            str(host.tcp.getsockname()[1]), helper, host.name, str(host.shm_key)]
    env = {'PATH': os.environ['PATH'], 'BAILEY_DRILL': hex(number | holes)}
    master = slave = None
    if holes & HOLES['TTY']:
        master, slave = pty.openpty()
    stdin = slave if slave is not None else open(helper, 'rb')
    try:
        done = subprocess.run(argv, env=env, stdin=stdin, capture_output=True, timeout=30, text=True,
                              errors='replace', start_new_session=True)
    except subprocess.TimeoutExpired:
        return None, 'timed out'
    typed = b''
    if master is not None and select.select([master], [], [], 0.1)[0]:
        typed = os.read(master, 10)
    # A sentry that is not pid 1 of a namespace leaves its stubs behind.
    kept = {os.getpid(), host.victim.pid, keep, *(descendants(keep) if keep else ())}
    for pid in descendants(1) if holes & HOLES['PIDNS'] else ():
        if pid not in kept:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    return done.returncode, done.stderr.strip() + (f' typed {typed}' if typed else '')


def was_refused(status, text):
    return status == REFUSED or (status == 125 and 'signal 31' in text)


def drill(host, number, name, layers, also, **target):
    if PLATFORM == 'ptrace' and name == 'ptrace':
        layers = [l for l in layers if l != 'FILTER']  # that platform needs the call
    mask = lambda names: sum(HOLES[n] for n in set(names))
    status, text = run(host, number, 0, **target)
    good = was_refused(status, text) and host.victim.alive() and host.victim.memory() == 'PLANTED!'
    if 'FILTER' in layers:
        good = good and 'signal 31' in text
    check(good, f'{name}: refused', f'status {status}: {text}')
    host.fresh_victim()
    for layer in layers if len(layers) > 1 else []:
        status, text = run(host, number, mask([l for l in layers if l != layer] + also) & ~HOLES[layer], **target)
        check(was_refused(status, text), f'{name}: refused by {layer} alone', f'status {status}: {text}')
        host.fresh_victim()
    status, text = run(host, number, mask(layers + also), **target)
    if status == REFUSED and ('ENOSYS' in text or 'EOPNOTSUPP' in text):
        ok(f'{name}: no control, this kernel has no such call')
    else:
        check(status == SUCCEEDED, f'{name}: the control succeeds', f'status {status}: {text}')
    host.fresh_victim()


def gofer_drill(host, number, name):
    status, text = run(host, number, 0)
    check(status == 125 and 'gofer' in text, f'{name}: the gofer ends, and the sandbox with it',
          f'status {status}: {text}')


def bug_drill(host, number, name, sanitized):
    status, text = run(host, number, 0)
    if name == 'use_after_free':
        if sanitized:
            check(status not in (REFUSED, SUCCEEDED) and 'heap-use-after-free' in text,
                  f'{name}: the sanitizer ends the run', f'status {status}: {text}')
    elif name == 'overflow_stack':
        check(status == 125 and ('#1' in text or 'overflow' in text or 'SIGABRT' in text or 'stack' in text or
                                 sanitized and 'status 99' in text),
              f'{name}: ends with a reason', f'status {status}: {text}')
    else:
        check(status == 125 and '#' in text and 'bailey-sentry+0x' in text or sanitized and status == 125,
              f'{name}: backtrace in the log, and the sandbox ends', f'status {status}: {text}')


def other_sandbox():
    """Another sandbox that runs meanwhile: its sentry's pid and an address of it."""
    cli = subprocess.Popen([os.path.join(BIN, 'bailey'), f'--platform={PLATFORM}', 'do', '--cwd', '/', '--',
                            'sh', '-c', 'echo up; sleep 1000'], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    cli.stdout.readline()
    for pid in descendants(cli.pid):
        with open(f'/proc/{pid}/comm') as f:
            if f.read().startswith('bailey-sentry'):
                with open(f'/proc/{pid}/maps') as maps:
                    return cli, pid, int(maps.readline().split('-')[0], 16)
    return cli, None, None


def other_drill(host, number):
    # Not CAPS: root owns the other one's user namespace, which gives it all capabilities over it.
    layers = ['PIDNS', 'USER', 'LANDLOCK']
    cli, pid, address = other_sandbox()
    if pid is None:
        fail('another sandbox: no sentry found')
        return
    holes = lambda names: sum(HOLES[n] for n in names)
    status, text = run(host, number, 0, pid=pid, address=address)
    check(was_refused(status, text), 'another sandbox: its sentry is not read', f'status {status}: {text}')
    for layer in layers:
        status, text = run(host, number, holes([n for n in layers if n != layer] + ['CAPS']), keep=cli.pid,
                           pid=pid, address=address)
        check(was_refused(status, text), f'another sandbox: refused by {layer} alone', f'status {status}: {text}')
    status, text = run(host, number, holes(layers + ['CAPS']), keep=cli.pid, pid=pid, address=address)
    check(status == SUCCEEDED, 'another sandbox: the control reads it', f'status {status}: {text}')
    cli.kill()
    cli.wait()


def main():
    host = Host()
    with open(os.path.join(BIN, 'bailey-sentry'), 'rb') as f:
        sanitized = b'__asan_init' in f.read()
    bugs = ('use_after_free', 'overflow_stack', 'failed_assertion', 'null_dereference')
    for number, name, layers, also in read_acts():
        if ONLY and name not in ONLY:
            continue
        if name in bugs:
            bug_drill(host, number, name, sanitized)
        elif name.endswith('_to_gofer'):
            gofer_drill(host, number, name)
        else:
            drill(host, number, name, layers, also)
        if name == 'vm_readv':
            other_drill(host, number)
    finish()


main()
