#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_tokens.py BIN PLATFORM: tokens are planted in the host's private files, in environments and memory of
its processes and in another sandbox. A guest finds none; the control, which is shown one, finds it."""
import atexit
import hashlib
import os
import secrets
import subprocess
import sys

from drills_lib import Victim, check, finish

HERE = os.path.dirname(os.path.abspath(__file__))
BIN, PLATFORM = sys.argv[1:3]
TOKEN = 'TOKEN' + secrets.token_hex(12)
BAILEY = [os.path.join(BIN, 'bailey'), f'--platform={PLATFORM}', 'do']
# The CLI of the sandbox under test has the token in its environment, too.
ENV = {'PATH': os.environ['PATH'], 'HOME': '/root', 'SECRET_TOKEN': TOKEN}


def plant_files():
    """Private files where secrets are kept, and public ones where a guest must not look."""
    places = [('/root', 0o600), ('/home', 0o644), ('/tmp', 0o644), ('/dev/shm', 0o644), ('/run', 0o644),
              ('/var/tmp', 0o600), ('/etc', 0o600), ('/etc/ssh', 0o600), ('/var/lib', 0o600), ('/opt', 0o600)]
    planted = []
    for place, mode in places:
        if not os.path.isdir(place):
            continue
        path = os.path.join(place, f'bailey-drill-{os.getpid()}-{secrets.token_hex(4)}')
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        os.write(fd, f'{TOKEN}\n'.encode())
        os.close(fd)
        os.chmod(path, mode)
        planted.append(path)
        atexit.register(os.unlink, path)
    return planted


def search(*options, paths=()):
    argv = BAILEY + ['--cwd', '/', '--mount', f'{HERE}:/drills', *options, '--', 'python3', '-B', '/drills/guest_tokens.py',
                     hashlib.sha256(TOKEN.encode()).hexdigest(), '/root', '/home', '/tmp', '/dev/shm', '/run', '/var/tmp', '/etc', '/var/lib', '/opt',
                     *paths]
    done = subprocess.run(argv, env=ENV, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250)
    return done.returncode, done.stdout, done.stderr


def main():
    planted = plant_files()
    victim = Victim(env={'SECRET_TOKEN': TOKEN})
    script = ('echo $SECRET_TOKEN > /tmp/token; echo $SECRET_TOKEN > /dev/shm/token; mkdir -p /run/x; '
              'echo $SECRET_TOKEN > /run/x/token; echo up; sleep 1000')
    other = subprocess.Popen(BAILEY + ['--cwd', '/', '--env', f'SECRET_TOKEN={TOKEN}', '--', 'sh', '-c', script], env=ENV,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    check(other.stdout.readline() == 'up\n', 'another sandbox with tokens runs')

    status, out, err = search(paths=planted)
    lines = out.splitlines()
    check(status == 0 and lines and lines[-1].startswith('read '), f'a guest searched: {lines[-1:]}', err)
    check('FOUND' not in out, f'nothing of {len(planted)} files, processes and another sandbox was found', out)
    for path in ('/etc/shadow', '/etc/gshadow', '/root/.bashrc'):
        done = subprocess.run(BAILEY + ['--cwd', '/', '--', 'cat', path], capture_output=True, text=True, env=ENV,
                              stdin=subprocess.DEVNULL)
        check(done.returncode != 0 and not done.stdout, f'{path} is not shown', done.stdout[:80])

    # Controls: the search finds what it's shown: a file, and an environment (which is memory, too).
    status, out, err = search('--mount', f'{planted[0]}:/var/tmp/shown')
    check('FOUND /var/tmp/shown' in out, 'the control finds a file that is mounted', out + err)
    status, out, err = search('--env', f'SECRET_TOKEN={TOKEN}')
    check('/environ' in out and '/mem' in out, 'the control finds its own environment and memory', out + err)
    other.kill()
    other.wait()
    victim.end()
    finish()


main()
