/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an interrupted system call says what shall happen after the signal: the kernel's internal codes.
 * task/signal_deliver.c alone turns them into guest results; no guest ever sees one.
 */
#pragma once

#define ERESTARTSYS 512           /* restart if the handler has SA_RESTART, else EINTR */
#define ERESTARTNOINTR 513        /* always restart */
#define ERESTARTNOHAND 514        /* restart if there was no handler, else EINTR */
#define ERESTART_RESTARTBLOCK 516 /* restart by restart_syscall(2) if no handler, else EINTR */
