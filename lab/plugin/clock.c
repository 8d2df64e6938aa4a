/* SPDX-License-Identifier: MIT */
/*
 * Stops the time of day for the process that loads this library by LD_PRELOAD: QEMU, in counted
 * mode.
 *
 * QEMU emulates the TLB. It resizes this TLB by how much of it was in use in the last 100 ms of the
 * host's time. A page's accessed bit is set when the TLB misses, and the kernel does more for a
 * page with this bit, for example in munmap(). So the number of the guest's instructions would
 * depend on the host's speed, for example by 34 in one munmap(). While the time stands still, QEMU
 * only enlarges the TLB, and only the guest's accesses decide when.
 *
 * The guest's clock does not come from here: it counts instructions.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#define EXPORT __attribute__((visibility("default")))
#define SECONDS 1700000000

EXPORT int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	(void)zone;
	*now = (struct timeval){ .tv_sec = SECONDS };
	return 0;
}

/*
 * GLib's, in microseconds. In QEMU 7.2 to 10.0, the TLB's time comes from gettimeofday(), and other
 * code calls this function.
 */
EXPORT int64_t g_get_real_time(void);
int64_t g_get_real_time(void)
{
	return SECONDS * INT64_C(1000000);
}

/*
 * A process that loaded this library prints this variable when it ends. If a script replaces itself
 * (exec) by a QEMU without this library, nothing is printed.
 */
__attribute__((destructor)) static void prove_loaded(void)
{
	const char *proof = getenv("KLAT_CLOCK_PROOF");

	if (proof)
		fprintf(stderr, "%s\n", proof);
}
