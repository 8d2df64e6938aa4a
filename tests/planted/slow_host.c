// SPDX-License-Identifier: MIT
// The dynamic linker preloads this into QEMU. It delays one in 400 long jumps. QEMU leaves a halted
// guest by a long jump, and counts the guest's instructions afterwards. It also ends a QEMU with
// -icount that reads the host's time of day: its samples would depend on the host's speed. Such a
// QEMU creates the file that SLOW_HOST names: it shows a test that this library is loaded.

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static bool counts;

/* The C library gives constructors the arguments of main(). */
__attribute__((constructor)) static void find_counting_qemu(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		counts |= !strcmp(argv[i], "-icount");
	if (counts)
		close(open(getenv("SLOW_HOST"), O_CREAT | O_WRONLY, 0644));
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec time;

	(void)zone;
	if (counts)
		abort();
	clock_gettime(CLOCK_REALTIME, &time);
	*now = (struct timeval){ time.tv_sec, time.tv_nsec / 1000 };
	return 0;
}

/* GLib's gettimeofday(), in microseconds. */
int64_t g_get_real_time(void);
int64_t g_get_real_time(void)
{
	struct timeval now;

	gettimeofday(&now, NULL);
	return now.tv_sec * INT64_C(1000000) + now.tv_usec;
}

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
