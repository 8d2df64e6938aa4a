/* SPDX-License-Identifier: MIT */
/*
 * Preloaded before eventloop, makes the kernel one that knows or allows less of io_uring.
 * KLAT_URING_UNKNOWN is a mask of set-up flags that it does not know; with KLAT_URING_RESTRICTED it
 * makes rings and then refuses to poll and to read. The flags of each ring that was made go to the
 * file KLAT_URING_LOG.
 */
#include <dlfcn.h>
#include <errno.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef int init(unsigned entries, struct io_uring *ring, struct io_uring_params *params);

static unsigned unknown_flags(void)
{
	const char *text = getenv("KLAT_URING_UNKNOWN");

	return text ? strtoul(text, NULL, 0) : 0;
}

static void write_down(unsigned flags)
{
	const char *path = getenv("KLAT_URING_LOG");
	FILE *log = path ? fopen(path, "a") : NULL;

	if (!log)
		return;
	fprintf(log, "%u\n", flags);
	fclose(log);
}

static int enroll(const struct io_uring *ring, unsigned what, const void *argument, unsigned count)
{
	return syscall(SYS_io_uring_register, ring->ring_fd, what, argument, count) ? -errno : 0;
}

/* The kernel's own restrictions, of which a container could make use. */
static int restrict_ring(const struct io_uring *ring)
{
	const struct io_uring_restriction only = { .opcode = IORING_RESTRICTION_SQE_OP,
						   .sqe_op = IORING_OP_ASYNC_CANCEL };
	int err = enroll(ring, IORING_REGISTER_RESTRICTIONS, &only, 1);

	return err ? err : enroll(ring, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
}

int io_uring_queue_init_params(unsigned entries, struct io_uring *ring,
			       struct io_uring_params *params)
{
	init *own = (init *)dlsym(RTLD_NEXT, "io_uring_queue_init_params");
	const bool restricted = getenv("KLAT_URING_RESTRICTED");
	int err;

	if (params->flags & unknown_flags())
		return -EINVAL;
	params->flags |= restricted ? IORING_SETUP_R_DISABLED : 0;
	err = own(entries, ring, params);
	if (!err)
		write_down(params->flags);
	return !err && restricted ? restrict_ring(ring) : err;
}
