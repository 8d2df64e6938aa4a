/* SPDX-License-Identifier: MIT */
#include "arch/isa.h"

#include <setjmp.h>
#include <signal.h>

static sigjmp_buf trapped;

static void on_trap(int signal)
{
	siglongjmp(trapped, signal);
}

bool klat_arch_is_trapped(uint64_t (*read)(void))
{
	static const int signals[] = { SIGILL, SIGSEGV };
	struct sigaction action = { .sa_handler = on_trap }, before[2];
	volatile bool failed = true;

	for (int i = 0; i < 2; i++)
		sigaction(signals[i], &action, &before[i]);
	if (!sigsetjmp(trapped, 1)) {
		read();
		failed = false;
	}
	for (int i = 0; i < 2; i++)
		sigaction(signals[i], &before[i], NULL);
	return failed;
}
