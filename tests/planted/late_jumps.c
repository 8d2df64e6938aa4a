// SPDX-License-Identifier: MIT
// The dynamic linker preloads this into QEMU. It delays one in 400 long jumps. QEMU leaves a halted
// guest by a long jump, and counts the guest's instructions afterwards.

#include <dlfcn.h>
#include <setjmp.h>
#include <time.h>

typedef void Jump(sigjmp_buf buffer, int value);

static void jump(const char *name, sigjmp_buf buffer, int value)
{
	static __thread unsigned jumps;
	struct timespec delay = { .tv_nsec = 50000 };
	Jump *next = (Jump *)dlsym(RTLD_NEXT, name);

	if (++jumps % 400 == 0)
		nanosleep(&delay, NULL);
	next(buffer, value);
}

void siglongjmp(sigjmp_buf buffer, int value)
{
	jump("siglongjmp", buffer, value);
	__builtin_unreachable();
}

void __longjmp_chk(sigjmp_buf buffer, int value)
{
	jump("__longjmp_chk", buffer, value);
	__builtin_unreachable();
}
