# SPDX-License-Identifier: Apache-2.0
"""A hostile guest that looks for a planted token: guest_tokens.py SHA256 PATH... It knows the token by its hash
only, so that its own memory does not hold it. Prints where it found it, then how much it read."""
import hashlib
import os
import re
import sys

wanted = sys.argv[1]
shape = re.compile(rb'TOKEN[0-9a-f]{24}')
found, files, size = [], 0, 0


def look(where, data):
    global size
    size += len(data)
    if any(hashlib.sha256(m.group(0)).hexdigest() == wanted for m in shape.finditer(data)):
        found.append(where)


def read(path, limit=1 << 20):
    global files
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return
    try:
        files += 1
        look(path, os.read(fd, limit))
    except OSError:
        pass
    finally:
        os.close(fd)


def tree(top, depth=4):
    try:
        entries = list(os.scandir(top))
    except OSError:
        read(top)
        return
    for entry in entries:
        look(entry.path + ' (name)', entry.name.encode())
        if entry.is_dir(follow_symlinks=False):
            if depth > 0:
                tree(entry.path, depth - 1)
        else:
            read(entry.path)


def memory(pid):
    try:
        maps = open(f'/proc/{pid}/maps').read()
        mem = os.open(f'/proc/{pid}/mem', os.O_RDONLY)
    except OSError:
        return
    for line in maps.splitlines():
        match = re.match(r'([0-9a-f]+)-([0-9a-f]+) r', line)
        if not match or int(match[1], 16) >= 1 << 47:
            continue
        start, end = (int(g, 16) for g in match.groups())
        at = start
        while at < min(end, start + (64 << 20)):
            try:
                chunk = os.pread(mem, min(1 << 20, end - at), at)
            except OSError:
                break
            if not chunk:
                break
            look(f'/proc/{pid}/mem {line}', chunk)
            at += len(chunk)
    os.close(mem)


for path in sys.argv[2:]:
    tree(path)
pids = sorted(int(n) for n in os.listdir('/proc') if n.isdigit())
for pid in pids:
    for name in ('environ', 'cmdline', 'comm', 'maps', 'status', 'mountinfo', 'stat'):
        read(f'/proc/{pid}/{name}')
    memory(pid)
# Every pid that the host may have, by every name that it would have here.
for pid in range(1, 70000):
    if pid not in pids and os.path.exists(f'/proc/{pid}/environ'):
        read(f'/proc/{pid}/environ')
        memory(pid)
for where in found:
    print(f'FOUND {where}')
print(f'read {files} files, {size} bytes, {len(pids)} processes')
