/* SPDX-License-Identifier: MIT */
/* The threads beside those that fault: one that serves their faults, one that maps memory. */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Inaccessible memory on both sides keeps the mapping from being merged with a neighbour, whose
 * lock would be taken, too. Pages that are not touched need no TLB shootdown.
 */
static void *map_memory(void *argument)
{
	enum { BYTES = 1 << 20 };
	struct mapper *mapper = argument;
	char *place = mmap(NULL, 3 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (place == MAP_FAILED) {
		__atomic_store_n(&mapper->error, errno, __ATOMIC_RELAXED);
		return NULL;
	}
	place += BYTES;
	while (!__atomic_load_n(&mapper->end, __ATOMIC_ACQUIRE)) {
		if (!__atomic_load_n(&mapper->may_begin, __ATOMIC_ACQUIRE)) {
			sched_yield();
			continue;
		}
		if (mmap(place, BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ||
		    munmap(place, BYTES)) {
			__atomic_store_n(&mapper->error, errno, __ATOMIC_RELAXED);
			return NULL;
		}
		__atomic_store_n(mapper->mapped, *mapper->mapped + 1, __ATOMIC_RELAXED);
		__atomic_store_n(&mapper->is_running, 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

int mapper_await(struct klat_worker *worker, struct mapper *mapper)
{
	__atomic_store_n(&mapper->may_begin, 1, __ATOMIC_RELEASE);
	if (!mapper->started || !klat_spin_until(worker, &mapper->is_running, 1))
		return 0;
	return -__atomic_load_n(&mapper->error, __ATOMIC_RELAXED) ?: -ETIMEDOUT;
}

int mapper_start(struct klat_run *run, struct mapper *mapper, int place)
{
	int err = klat_thread_start(&mapper->thread, run->cpus[place], map_memory, mapper);

	mapper->started = !err;
	return err ? klat_cannot_start(run, -err, "the mapper") : 0;
}

void mapper_end(struct mapper *mapper)
{
	__atomic_store_n(&mapper->end, true, __ATOMIC_RELEASE);
	if (mapper->started)
		pthread_join(mapper->thread, NULL);
}

int uffd_open(struct klat_run *run)
{
	struct uffdio_api api = { .api = UFFD_API };
	/* The kernel lets anybody handle the faults of user mode, from Linux 5.11 on. */
	int uffd = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (uffd < 0 && errno == EINVAL)
		uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (uffd >= 0 && !ioctl(uffd, UFFDIO_API, &api))
		return uffd;
	return klat_skip(run,
			 "userfaultfd() failed (%m): the kernel has none, or run as root, or set "
			 "vm.unprivileged_userfaultfd=1");
}

int uffd_register(int uffd, const struct area *area)
{
	struct uffdio_register registered = {
		.range = { (uintptr_t)area->base, area->size },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	return ioctl(uffd, UFFDIO_REGISTER, &registered) ? -errno : 0;
}

int uffd_serve(int uffd, size_t page)
{
	static char zeros[MAX_PAGE];
	struct uffd_msg message;
	struct uffdio_copy copy = { .src = (uintptr_t)zeros, .len = page };

	if (read(uffd, &message, sizeof(message)) != sizeof(message))
		return -(errno ?: EIO);
	copy.dst = message.arg.pagefault.address & -page;
	return ioctl(uffd, UFFDIO_COPY, &copy) ? -errno : 0;
}
