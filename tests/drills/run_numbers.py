#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_numbers.py BIN DRILLS_BIN GUESTS PLATFORM: invariants I1 (no system call of a guest's own choosing runs on
the host; the control has the stub's filter opened) and I2 (a stub holds no descriptor)."""
import os
import re
import resource
import subprocess
import sys
import time

from drills_lib import (Victim, check, comm, descendants, fail, finish, loopback_up, temporary_dir)

BIN, DRILLS_BIN, GUESTS, PLATFORM = sys.argv[1:5]
DRILL_HOLE_STUB_FILTER = 1 << 13


def start(binary, guest, *args, drill=0, **more):
    env = {'PATH': os.environ['PATH'], 'BAILEY_DRILL': hex(drill)}
    return subprocess.Popen([os.path.join(binary, 'bailey'), f'--platform={PLATFORM}', 'do', '--cwd', '/', '--mount',
                             f'{GUESTS}:/guests', '--', f'/guests/{guest}', *args], env=env,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)


def read(path):
    try:
        with open(path) as f:
            return f.read()
    except OSError as e:
        return f'error {e.errno}'


def stubs(cli):
    return sorted(p for p in descendants(cli.pid) if comm(p) not in ('bailey', 'bailey-sentry', 'bailey-gofer', 'bailey-monitor', ''))


def descriptors(pid):
    try:
        return sorted(os.listdir(f'/proc/{pid}/fd'))
    except OSError:
        return []


def look(pid):
    """What the host shows of a process that a guest's own system calls could change."""
    stat = read(f'/proc/{pid}/stat').rsplit(')', 1)[-1].split()
    status = dict(re.findall(r'^(Umask|Seccomp|NoNewPrivs|CapEff|Uid):\s*(.*)$', read(f'/proc/{pid}/status'), re.M))
    limits = re.search(r'^Max file size.*$', read(f'/proc/{pid}/limits'), re.M)
    ioprio = subprocess.run(['ionice', '-p', str(pid)], capture_output=True, text=True).stdout.strip()
    return {'name': comm(pid), 'group': stat[2:4], 'nice': stat[16:17], 'policy': stat[38:39],
            'personality': read(f'/proc/{pid}/personality'), 'limit': limits.group(0) if limits else '',
            'ioprio': ioprio, 'fds': descriptors(pid), **status}


def host_state(directory, victim):
    planted = os.path.join(directory, 'planted')
    st = os.stat(planted)
    return {'files': sorted(os.listdir(directory)), 'content': read(planted), 'mode': oct(st.st_mode),
            'owner': (st.st_uid, st.st_gid), 'links': st.st_nlink, 'hostname': os.uname().nodename,
            'domain': os.uname()[1], 'mounts': read('/proc/self/mountinfo'), 'shm': read('/proc/sysvipc/shm'),
            'sem': read('/proc/sysvipc/sem'), 'msg': read('/proc/sysvipc/msg'), 'alive': victim.alive(),
            'memory': victim.memory(), 'limits': read(f'/proc/{victim.pid}/limits'), 'victim': look(victim.pid),
            'own limits': resource.getrlimit(resource.RLIMIT_NOFILE),
            'affinity': os.sched_getaffinity(victim.pid), 'nice': os.getpriority(os.PRIO_PROCESS, victim.pid)}


def test_numbers():
    directory = temporary_dir()
    os.chmod(directory, 0o777)
    with open(os.path.join(directory, 'planted'), 'w') as f:
        f.write('planted\n')
    os.chmod(os.path.join(directory, 'planted'), 0o666)
    with open('/proc/sys/kernel/ns_last_pid', 'w') as f: # a pid that no guest has
        f.write('29999')
    victim = Victim()
    before = host_state(directory, victim)
    guest = start(BIN, 'drill_guest_numbers', 'all', directory, str(victim.pid))
    begin = time.monotonic()
    text, _ = guest.communicate(timeout=280)
    check(guest.returncode == 0 and text.startswith('done'), 'I1: every number was tried',
          f'status {guest.returncode}: {text}')
    after = host_state(directory, victim)
    for key, value in before.items():
        check(after[key] == value, f'I1: no mark on the host: {key}', f'{value} became {after[key]}')
    print(f'      {text.strip()} in {time.monotonic() - begin:.1f} s')
    victim.end()


def marks(binary, drill):
    guest = start(binary, 'drill_guest_numbers', 'self', drill=drill)
    if guest.stdout.readline() != 'ready\n':
        fail('I1: the guest did not start')
        return set()
    before = {pid: look(pid) for pid in stubs(guest)}
    guest.stdin.write('go\n')
    guest.stdin.flush()
    line = guest.stdout.readline()
    after = {pid: look(pid) for pid in before}
    check(line == 'marked\n', 'I1: the guest marked itself', line)
    guest.stdin.write('end\n')
    guest.stdin.flush()
    guest.wait(timeout=10)
    return {key for pid in before for key in before[pid] if before[pid][key] != after[pid].get(key)}


def test_marks():
    found = marks(DRILLS_BIN, 0)
    check(not found, 'I1: no mark on a stub', found)
    found = marks(DRILLS_BIN, DRILL_HOLE_STUB_FILTER)
    check(len(found) >= 4, f'I1: the control, a stub with its filter opened, has marks: {sorted(found)}', found)


def test_descriptors():
    guest = start(BIN, 'drill_guest_files', '/guests/drill_guest_files')
    check(guest.stdout.readline() == 'start\n', 'I2: the guest started')
    seen, looks, most = set(), 0, 0
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        for pid in stubs(guest):
            fds = descriptors(pid)
            seen.update(fds)
            most = max(most, len(fds))
            looks += 1
    check(looks > 20 and most <= 1 and seen <= {'0'}, f'I2: at most descriptor 0, for a moment ({looks} looks)',
          f'{seen}, {most} at once, {looks} looks')
    check(guest.stdout.readline() == 'idle\n', 'I2: the guest idles')
    for pid in stubs(guest):
        fds = descriptors(pid)
        limit = re.search(r'^Max open files\s+(\d+)\s+(\d+)', read(f'/proc/{pid}/limits'), re.M)
        if fds or not limit or limit.groups() != ('1', '1'):
            fail(f'I2: stub {pid} ({comm(pid)}) holds {fds}, limit {limit and limit.groups()}')
    check(len(stubs(guest)) > 0, f'I2: no stub of {len(stubs(guest))} holds a descriptor')
    guest.stdin.write('end\n')
    guest.stdin.flush()
    check(guest.wait(timeout=10) == 0, 'I2: the guest ended')


def main():
    loopback_up()
    test_marks()
    test_descriptors()
    test_numbers()
    finish()


main()
