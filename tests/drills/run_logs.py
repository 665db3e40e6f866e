#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_logs.py BIN PLATFORM: I9. A guest puts record-like bytes with newlines, escapes and control characters
into whatever may come into a log or an error line; no line of either is its own, and no byte is a control."""
import json
import os
import re
import subprocess
import sys

from drills_lib import check, finish, temporary_dir

BIN, PLATFORM = sys.argv[1:3]
FORGED = '2026-01-01T00:00:00.000000Z error forged/forged: hostile'
EVIL = f'x\n{FORGED}\n\x1b]0;hostile\x07\x1b[2Jy"\\}}\r{FORGED}\x9b\u00ff'
TEXT = re.compile(r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z (error|warn|info|debug) [a-z]+/[\w/-]+: ')
SCRIPT = '''
import ctypes, os, sys
evil = sys.argv[1].encode(errors='surrogateescape')
libc = ctypes.CDLL(None, use_errno=True)
for call in (lambda: open(evil[:200]), lambda: open(evil[:200], 'w'), lambda: os.mkdir(evil[:200]),
             lambda: os.symlink(evil, evil[:100]), lambda: os.execv(evil, [evil, evil]), lambda: os.unlink(evil[:200]),
             lambda: os.rename(evil[:200], evil[:150]), lambda: os.chdir(evil), lambda: os.setxattr('/tmp', evil[:100], evil)):
    try:
        call()
    except OSError:
        pass
libc.prctl(15, evil, 0, 0, 0)
libc.sethostname(evil, len(evil[:60]))
libc.syscall(165, evil, evil, evil, 0, evil)  # mount
libc.syscall(139, evil, evil, evil)           # not served
if sys.argv[2] == 'crash':
    ctypes.string_at(1)
sys.stdout.flush()
'''


def run(directory, log_format, options, argv):
    log = os.path.join(directory, f'log-{log_format}')
    if os.path.exists(log):
        os.unlink(log)
    done = subprocess.run([os.path.join(BIN, 'bailey'), f'--platform={PLATFORM}', '--strace', '--debug', '--log', log,
                           f'--log-format={log_format}', 'do', '--cwd', '/', *options, '--', *argv],
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    if not os.path.exists(log):  # it did not get that far
        return b'', done.stderr, done.returncode
    with open(log, 'rb') as f:
        return f.read(), done.stderr, done.returncode


def check_bytes(where, data):
    bad = [b for b in data if (b < 0x20 and b != 0x0a) or b > 0x7e]
    check(not bad, f'{where}: no control byte', bad[:8])


def check_log(where, data, log_format):
    check_bytes(where, data)
    lines = data.decode('ascii', errors='replace').splitlines()
    check(len(lines) >= 1, f'{where}: {len(lines)} records', lines[:3])
    if log_format == 'json':
        wrong = []
        for line in lines:
            try:
                record = json.loads(line)
                wrong += [line] if 'forged' in str(record.get('module', '')) or not isinstance(record, dict) else []
            except ValueError:
                wrong.append(line)
    else:
        wrong = [line for line in lines if not TEXT.match(line) or ' forged/' in line[:45]]
    check(not wrong, f'{where}: every line is a record of ours', wrong[:3])


def main():
    directory = temporary_dir()
    for log_format in ('text', 'json'):
        for name, argv in (('calls', ['python3', '-c', SCRIPT, EVIL, 'no']), ('crash', ['python3', '-c', SCRIPT, EVIL, 'crash']),
                           ('missing command', [EVIL, EVIL]), ('missing path', ['/' + EVIL])):
            log, err, status = run(directory, log_format, ['--env', f'EVIL={EVIL}'], argv)
            check_log(f'{log_format}, {name}', log, log_format)
            if name.startswith('missing'):
                check_bytes(f'{log_format}, {name}: error line', err)
                check(status == 127 and err.count(b'\n') == 1, f'{log_format}, {name}: one line, 127', (status, err))
    # What isn't the guest's but comes from outside, too: options.
    for options in (['--cwd', '/' + EVIL], ['--user', EVIL], ['--hostname', EVIL], ['--mount', f'/{EVIL}:/x']):
        log, err, status = run(directory, 'text', options, ['true'])
        check_bytes(f'{options[0]}: error line', err)
        check(status == 125 and err.count(b'\n') == 1, f'{options[0]}: one line, 125', (status, err))
    # The control: the same bytes do forge a line where nobody escapes, on the guest's own standard output.
    done = subprocess.run([os.path.join(BIN, 'bailey'), f'--platform={PLATFORM}', 'do', '--cwd', '/', '--', 'printf', '%s', EVIL],
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    check(f'\n{FORGED}\n'.encode() in done.stdout, 'the control forges a line', done.stdout)
    finish()


main()
