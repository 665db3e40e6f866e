# SPDX-License-Identifier: Apache-2.0
"""What the scripts of this folder share: checks, planted processes, sandboxes."""
import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

failures = 0


def ok(text):
    print(f'ok    {text}', flush=True)


def fail(text):
    global failures
    failures += 1
    print(f'FAIL  {text}', flush=True)


def check(condition, text, detail=''):
    if condition:
        ok(text)
    else:
        fail(f'{text}: {detail}')
    return bool(condition)


def finish():
    print(f'{failures} failed')
    sys.exit(1 if failures else 0)


def loopback_up():
    with socket.socket() as s:
        request = struct.pack('16sH14x', b'lo', 1)  # IFF_UP
        fcntl.ioctl(s, 0x8914, request)  # SIOCSIFFLAGS


class Victim:
    """A process of the host with eight known bytes at a known address and a secret in its environment."""
    CODE = ('import ctypes, sys; b = ctypes.create_string_buffer(b"PLANTED!"); '
            'print(ctypes.addressof(b), flush=True)\n'
            'for line in sys.stdin: print(b.raw[:8].decode(errors="replace"), flush=True)')

    def __init__(self, env=None):
        self.process = subprocess.Popen([sys.executable, '-c', self.CODE], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True,
                                        env={'PATH': os.environ['PATH'], **(env or {})})
        self.pid = self.process.pid
        self.address = int(self.process.stdout.readline())

    def alive(self):
        return self.process.poll() is None and self.state() not in 'tT'  # a tracer's end may leave it stopped

    def state(self):
        with open(f'/proc/{self.pid}/stat') as f:
            return f.read().rsplit(')', 1)[1].split()[0]

    def memory(self):
        self.process.stdin.write('\n')
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.kill()
        self.process.wait()


def descendants(top):
    """Pids beneath `top`, living ones."""
    parents = {}
    for name in os.listdir('/proc'):
        if name.isdigit():
            try:
                with open(f'/proc/{name}/stat') as f:
                    fields = f.read().rsplit(')', 1)[1].split()
            except OSError:
                continue
            if fields[0] not in 'ZX':
                parents[int(name)] = int(fields[1])
    found = []
    for pid in parents:
        at = pid
        while at in parents and at != top:
            at = parents[at]
        if at == top and pid != top:
            found.append(pid)
    return found


def comm(pid):
    try:
        with open(f'/proc/{pid}/comm') as f:
            return f.read().strip()
    except OSError:
        return ''


def wait_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    return condition()


def temporary_dir():
    path = tempfile.mkdtemp(prefix='bailey-drill-')
    import atexit
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
