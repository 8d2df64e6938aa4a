/* SPDX-License-Identifier: MIT */
/* The first access to each page that locking does not make. */
#include "prefault.h"

#include "base/base.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A page may begin with the bytes that AddressSanitizer puts between two variables. */
__attribute__((no_sanitize("address"))) static void touch(volatile char *at,
							  const volatile char *end, bool write)
{
	for (; at < end; at += 4096) {
		/* Another process, or the kernel, may write to the same byte. */
		if (write)
			__atomic_fetch_or(at, 0, __ATOMIC_RELAXED);
		else
			(void)*at;
	}
}

void klat_prefault(void)
{
	char *maps = klat_read_file("/proc/self/maps"), *rest = maps, *line;
	struct timespec now;

	/* "7f00-7f20 r--p ... name": see proc_pid_maps(5). */
	while ((line = strsep(&rest, "\n"))) {
		uintptr_t begin, end;
		char access[5];

		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, access) != 3)
			continue;
		if (!strcmp(access, "rw-s"))
			touch((char *)begin, (char *)end, true);
		/* Some pages of [vvar] cannot be read. */
		else if (!strncmp(access, "r-", 2) && access[3] == 'p' && !strstr(line, " [v"))
			touch((char *)begin, (char *)end, false);
	}
	free(maps);
	clock_gettime(CLOCK_MONOTONIC, &now); /* the page of [vvar] that it reads */
}
