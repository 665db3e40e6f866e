/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the sanitizers' run times: a locked-down process can't start a symbolizer or stop its threads. */
#include "sentry/sanitized.h"

#ifdef BAILEY_SANITIZED
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);
const char *__tsan_default_options(void);
void __sanitizer_set_report_fd(void *hfd);

#define COMMON "symbolize=0:color=never:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0:exitcode=99"

const char *__asan_default_options(void)
{
    return COMMON ":detect_leaks=0:use_sigaltstack=0:detect_stack_use_after_return=0:allocator_may_return_null=1";
}

const char *__ubsan_default_options(void)
{
    return COMMON ":print_stacktrace=1";
}

const char *__tsan_default_options(void)
{
    return COMMON ":halt_on_error=1:report_signal_unsafe=0";
}

void sanitized_init(int log_hfd)
{
    __sanitizer_set_report_fd((void *)(long)log_hfd); /* NOLINT: its API */
}
#else
extern const char sanitized_unused; /* a file is not empty */
#endif
