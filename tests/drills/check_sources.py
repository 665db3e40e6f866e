#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_sources.py CC: what the sources must keep to. I6: no guest address becomes a pointer (the type doesn't
compile to one, and nobody goes around it). The filters: each declared host call is used where it's declared."""
import os
import re
import subprocess
import sys

from drills_lib import check, finish

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CC = sys.argv[1]

# Calls that are made by more than their own name: by the libc, the compiler or the kernel.
OTHER_NAMES = {
    'rt_sigreturn': ['sigaction', 'handler'], 'rt_sigaction': ['sigaction'], 'rt_sigprocmask': ['unw_'],
    'mincore': ['unw_'], 'writev': ['libc'], 'clock_gettime': ['host_monotonic_ns', 'clock_gettime'],
    'exit': ['pthread', 'thread'], 'madvise': ['pthread', 'malloc', 'madvise'], 'futex': ['futex', 'thread', 'lock'],
    'write': ['host_write_all'], 'brk': ['malloc'], 'mmap': ['malloc', 'mmap'], 'munmap': ['malloc', 'munmap'], 'mremap': ['malloc'],
    'mprotect': ['malloc', 'mprotect'], 'rseq': ['threads'], 'set_robust_list': ['threads'],
    'exit_group': ['exit_group', '_exit', 'exit('],
}


def sources(*tops):
    for top in tops:
        for base, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith(('.c', '.h', '.S')):
                    path = os.path.join(base, name)
                    with open(path, encoding='utf-8') as f:
                        yield os.path.relpath(path, ROOT), f.read()


def compiles(line):
    program = f'#include "abi/guest_addr.h"\nint f(guest_addr a);\nint f(guest_addr a)\n{{\n    {line}\n}}\n'
    done = subprocess.run([CC, '-std=gnu17', '-D_GNU_SOURCE', '-I', ROOT, '-x', 'c', '-fsyntax-only', '-'],
                          input=program, capture_output=True, text=True)
    return done.returncode == 0


def check_guest_addr():
    check(compiles('return (int)a.va;'), 'I6: the control compiles')
    for line in ('return *(char *)a;', 'char *p = a; return *p;', 'return ((char *)(unsigned long)a)[0];',
                 'return *a;', 'return a[0];', 'return a + 1 > a;'):
        check(not compiles(line), f'I6: does not compile: {line}')
    around = re.compile(r'\(\s*(?:const |volatile )*[\w ]+\*+\s*\)\s*(?:\(\s*\w+\s*\)\s*)*\(?\s*[\w.>\[\]-]*\bva\b')
    for text in ('(void *)a.va', '(const char *)(uintptr_t)task->addr.va', '(struct x *)(uintptr_t)(a.va + 8)'):
        check(bool(around.search(text)), f'I6: the search finds {text}')
    found = [f'{path}: {match.group(0)}' for path, text in sources('sentry', 'loader', 'abi')
             for match in around.finditer(re.sub(r'/\*.*?\*/|//[^\n]*', '', text, flags=re.S))
             # process_vm_* takes a guest's address as a pointer that only the kernel follows.
             if not (path == 'sentry/platform/platform.c')]
    check(not found, 'I6: no guest address is turned into a pointer', found)


def unused(path, text):
    comments = re.findall(r'/\*.*?\*/', text, re.S)
    code = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
    for comment in comments:
        for names in re.findall(r'#syscalls ([\w, ]+):', comment):
            for name in re.split(r'\s*,\s*', names):
                others = OTHER_NAMES.get(name, [])
                if not (re.search(rf'\b(SYS_)?{name}\b', code) or
                        any(other in code or other in comment for other in others)):
                    yield f'{path}: {name}'


def check_declarations():
    control = '/* #syscalls getcpu,gettid: reason */\nhost_call0(SYS_gettid);\n'
    check(list(unused('x.c', control)) == ['x.c: getcpu'], 'the search finds a declaration that nobody uses')
    found = [u for path, text in sources('sentry', 'gofer', 'base', 'loader') for u in unused(path, text)]
    check(not found, 'each declared host call is used in the file that declares it', found)


check_guest_addr()
check_declarations()
finish()
