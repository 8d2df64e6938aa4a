/* SPDX-License-Identifier: MIT */
/* The calls by name: what they work on, their requests, and their effects. */
#include "syscall.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifndef SYS_mseal
#define SYS_mseal 462 /* on every architecture */
#endif
#define PATTERN 0x5a

const char *const call_names[] = { [GETPPID] = "getppid",
				   [GETTID] = "gettid",
				   [SCHED_YIELD] = "sched_yield",
				   [CLOSE_BAD] = "close-bad",
				   [WRITE_NULL] = "write-null",
				   [READ_ZERO] = "read-zero",
				   [FUTEX_WAKE_NONE] = "futex-wake-none",
				   [CLOCK_GETTIME] = "clock_gettime-syscall",
				   [STAT] = "stat",
				   [OPEN_CLOSE] = "open-close",
				   [READ_FILE] = "read-file",
				   [WRITE_FILE] = "write-file",
				   [SEND_RECV] = "send-recv",
				   [MMAP_MUNMAP] = "mmap-munmap",
				   [SELECT] = "select",
				   [POLL] = "poll",
				   [EPOLL_WAIT] = "epoll_wait",
				   [GETCPU] = "getcpu",
				   [GETRANDOM] = "getrandom",
				   [MSEAL] = "mseal",
				   [VDSO_CLOCK_GETTIME] = "clock_gettime-vdso",
				   [VDSO_GETCPU] = "getcpu-vdso",
				   [VDSO_GETRANDOM] = "getrandom-vdso",
				   NULL };

/* The vDSO's functions have the arguments of these calls. */
static const char *function_of(int call)
{
	switch (call) {
	case VDSO_CLOCK_GETTIME:
		return "clock_gettime";
	case VDSO_GETCPU:
		return "getcpu";
	case VDSO_GETRANDOM:
		return "getrandom";
	}
	return NULL;
}

bool call_enters(int call)
{
	return !function_of(call);
}

bool call_has_bytes(int call)
{
	return call == WRITE_NULL || call == READ_ZERO || call == READ_FILE || call == WRITE_FILE ||
	       call == SEND_RECV || call == MMAP_MUNMAP || call == GETRANDOM ||
	       call == VDSO_GETRANDOM;
}

bool call_has_descriptors(int call)
{
	return call == SELECT || call == POLL || call == EPOLL_WAIT;
}

bool call_reads(void)
{
	return options.call == READ_ZERO || options.call == READ_FILE;
}

int64_t call_count_by_kernel(void)
{
	if (!call_reads() && options.call != WRITE_NULL && options.call != WRITE_FILE)
		return -1;
	return klat_count_in("/proc/thread-self/io", call_reads() ? "syscr" : "syscw");
}

/* A memory device of the kernel. After `rm /dev/null`, a redirection makes a regular file of that
 * name. */
static int open_device(struct klat_run *run, const char *path, int mode, unsigned number)
{
	const int fd = open(path, mode);
	struct stat status;

	if (fd < 0)
		return klat_error(run, errno, "cannot open %s: %m", path);
	if (fstat(fd, &status) || !S_ISCHR(status.st_mode) || status.st_rdev != makedev(1, number))
		return klat_error(
			run, ENODEV,
			"%s is not the kernel's device: make it again by mknod -m 666 %s c 1 %u",
			path, path, number);
	return fd;
}

/* A file in memory: no disk, and no file that a killed run leaves. */
static int open_file(struct klat_run *run, struct objects *objects)
{
	char bytes[4096];

	memset(bytes, PATTERN, sizeof(bytes));
	objects->file = memfd_create("klat", MFD_CLOEXEC);
	if (objects->file < 0)
		return klat_error(run, errno, "cannot make a file in memory: %m");
	for (size_t size = 0; size < MAX_BYTES; size += sizeof(bytes))
		if (write(objects->file, bytes, sizeof(bytes)) != sizeof(bytes))
			return klat_error(run, errno, "cannot fill a file in memory: %m");
	return 0;
}

/* All of them are ready: the kernel looks at each, whatever the call, and says so. */
static int open_ready(struct klat_run *run, struct objects *objects)
{
	int err = klat_allow_files(run, options.descriptors + 64);

	objects->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!err && objects->epoll < 0)
		err = klat_error(run, errno, "cannot make an epoll descriptor: %m");
	for (int64_t i = 0; !err && i < options.descriptors; i++) {
		const int fd = objects->ready[i] = eventfd(1, EFD_CLOEXEC);
		struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

		if (fd < 0 || epoll_ctl(objects->epoll, EPOLL_CTL_ADD, fd, &event))
			err = klat_error(run, errno, "cannot make descriptor %lld of %lld: %m",
					 (long long)i + 1, (long long)options.descriptors);
		else if (options.call == SELECT && fd >= FD_SETSIZE)
			err = klat_skip(
				run,
				"descriptor %d is too high for select() (FD_SETSIZE is %d): "
				"give fewer --descriptors",
				fd, FD_SETSIZE);
		objects->above = MAX(objects->above, fd + 1);
	}
	return err;
}

int objects_open(struct klat_run *run, struct objects *objects)
{
	switch (options.call) {
	case READ_FILE:
	case WRITE_FILE:
		return open_file(run, objects);
	case SEND_RECV:
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, objects->sockets))
			return klat_error(run, errno, "cannot make a pair of sockets: %m");
		return 0;
	case SELECT:
	case POLL:
	case EPOLL_WAIT:
		return open_ready(run, objects);
	}
	objects->null = open_device(run, "/dev/null", O_WRONLY, 3);
	if (objects->null < 0)
		return objects->null;
	objects->zero = open_device(run, "/dev/zero", O_RDONLY, 5);
	return objects->zero < 0 ? objects->zero : 0;
}

/* open() returns the lowest free number. Nothing else here opens a file. */
static int next_descriptor(struct klat_run *run)
{
	const int fd = open("/dev/null", O_RDONLY);

	if (fd < 0)
		return klat_error(run, errno, "cannot open /dev/null: %m");
	close(fd);
	return fd;
}

/* Pages of this process; for mmap(), an address that nothing else uses. */
static int map_pages(struct klat_run *run, struct objects *objects)
{
	objects->pages = mmap(NULL, MAX_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (objects->pages == MAP_FAILED)
		return klat_error(run, errno, "cannot map memory: %m");
	if (options.call == MMAP_MUNMAP)
		munmap(objects->pages, MAX_BYTES);
	else if (syscall(SYS_mseal, objects->pages, 1, 0))
		return klat_skip(run, "mseal(), which Linux 6.10 brought, is missing, or forbidden "
				      "by a seccomp filter");
	return 0;
}

/* struct vgetrandom_opaque_params of include/uapi/linux/random.h */
struct random_parameters {
	uint32_t size, protection, flags, reserved[13];
};

int call_map_random(struct klat_run *run, struct call *call)
{
	struct random_parameters parameters = { 0 };
	void *state = MAP_FAILED;

	if (!call->function(0, 0, 0, (long)&parameters, -1))
		state = mmap(NULL, parameters.size, parameters.protection, parameters.flags, -1, 0);
	if (state == MAP_FAILED)
		return klat_error(run, errno, "cannot map a state for the vDSO's getrandom(): %m");
	call->requests[0].arguments[3] = (long)state;
	call->requests[0].arguments[4] = parameters.size;
	return 0;
}

static void describe_ready(struct objects *objects)
{
	struct pollfd *polled = (struct pollfd *)objects->outcome;
	fd_set *set = (fd_set *)objects->outcome;

	memset(objects->outcome, 0, sizeof(objects->outcome));
	for (int64_t i = 0; i < options.descriptors; i++)
		if (options.call == POLL)
			polled[i] = (struct pollfd){ objects->ready[i], POLLIN, 0 };
		else if (options.call == SELECT)
			FD_SET(objects->ready[i], set);
}

static void fill_requests(const struct klat_worker *worker, struct objects *objects,
			  struct request requests[2])
{
	const long bytes = (long)objects->bytes, received = (long)objects->received,
		   size = options.bytes, path = (long)"/dev/null", count = options.descriptors,
		   outcome = (long)objects->outcome, no_time = (long)&objects->no_time,
		   pages = (long)objects->pages, now = (long)&objects->time,
		   cpu = (long)&objects->cpu, node = (long)&objects->node;
	/* Without a message, recv() must not wait. */
	const struct request described[][2] = {
		[GETPPID] = { { SYS_getppid, { 0 }, getppid() } },
		[GETTID] = { { SYS_gettid, { 0 }, worker->tid } },
		[SCHED_YIELD] = { { SYS_sched_yield, { 0 }, 0 } },
		[CLOSE_BAD] = { { SYS_close, { -1 }, -EBADF } },
		[WRITE_NULL] = { { SYS_write, { objects->null, bytes, size }, size } },
		[READ_ZERO] = { { SYS_read, { objects->zero, bytes, size }, size } },
		[FUTEX_WAKE_NONE] = { { SYS_futex,
					{ (long)&objects->futex, FUTEX_WAKE_PRIVATE, 1 },
					0 } },
		[CLOCK_GETTIME] = { { SYS_clock_gettime, { CLOCK_MONOTONIC, now }, 0 } },
		[READ_FILE] = { { SYS_pread64, { objects->file, received, size }, size } },
		[WRITE_FILE] = { { SYS_pwrite64, { objects->file, bytes, size }, size } },
		[SEND_RECV] = { { SYS_sendto,
				  { objects->sockets[0], bytes, size, MSG_DONTWAIT },
				  size },
				{ SYS_recvfrom,
				  { objects->sockets[1], received, size, MSG_DONTWAIT },
				  size } },
		[MMAP_MUNMAP] = { { SYS_mmap,
				    { pages, size, PROT_READ,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1 },
				    pages },
				  { SYS_munmap, { pages, size }, 0 } },
		[SELECT] = { { SYS_pselect6, { objects->above, outcome, 0, 0, no_time }, count } },
		[GETCPU] = { { SYS_getcpu, { cpu, node }, 0 } },
		[GETRANDOM] = { { SYS_getrandom, { received, size }, size } },
		[MSEAL] = { { SYS_mseal, { pages, 1 }, 0 } },
		[VDSO_CLOCK_GETTIME] = { { SYS_clock_gettime, { CLOCK_MONOTONIC, now }, 0 } },
		[VDSO_GETCPU] = { { SYS_getcpu, { cpu, node }, 0 } },
		[VDSO_GETRANDOM] = { { SYS_getrandom, { received, size }, size } },
#ifdef SYS_stat
		[STAT] = { { SYS_stat, { path, outcome }, 0 } },
		[OPEN_CLOSE] = { { SYS_open, { path, O_RDONLY }, 0 }, { SYS_close, { 0 }, 0 } },
		[POLL] = { { SYS_poll, { outcome, count, 0 }, count } },
		[EPOLL_WAIT] = { { SYS_epoll_wait, { objects->epoll, outcome, count, 0 }, count } },
#else
		/* Newer kernel ABIs have only the calls that take a directory or a signal mask. */
		[STAT] = { { SYS_newfstatat, { AT_FDCWD, path, outcome }, 0 } },
		[OPEN_CLOSE] = { { SYS_openat, { AT_FDCWD, path, O_RDONLY }, 0 },
				 { SYS_close, { 0 }, 0 } },
		[POLL] = { { SYS_ppoll, { outcome, count, no_time }, count } },
		[EPOLL_WAIT] = { { SYS_epoll_pwait,
				   { objects->epoll, outcome, count, 0 },
				   count } },
#endif
	};

	memcpy(requests, described[options.call], sizeof(described[0]));
}

int call_describe(struct klat_worker *worker, struct objects *objects, struct call *call)
{
	struct klat_run *run = worker->run;
	const int number = options.call;
	const char *name = function_of(number);
	vdso_function function = name ? vdso_find(name) : NULL;
	int err = 0;

	if (name && !function)
		return klat_skip(run, "this kernel has no %s() in its vDSO", name);
	if (number == MMAP_MUNMAP || number == MSEAL)
		err = map_pages(run, objects);
	if (err)
		return err;
	if (call_has_descriptors(number))
		describe_ready(objects);
	fill_requests(worker, objects, call->requests);
	call->count = 1 + (call->requests[1].number != 0);
	call->function = function;
	/* Of more than four arguments, or with a fifth that has to be 0. */
	if (number == SEND_RECV || number == MMAP_MUNMAP || number == SELECT ||
	    number == EPOLL_WAIT)
		call->way = BY_SIX;
	if (function)
		call->way = BY_FUNCTION;
	if (number == VDSO_GETRANDOM)
		return call_map_random(run, call);
	if (number == OPEN_CLOSE) {
		const int fd = next_descriptor(run);

		if (fd < 0)
			return fd;
		call->requests[0].expected = call->requests[1].arguments[0] = fd;
	}
	return 0;
}

void call_prepare(struct objects *objects)
{
	memset(objects->bytes, options.call == READ_ZERO ? -1 : PATTERN + 1,
	       sizeof(objects->bytes));
	memset(objects->received, -1, sizeof(objects->received));
	objects->cpu = UINT32_MAX;
}

static bool are_all(const char *bytes, char value)
{
	return bytes[0] == value && !memcmp(bytes, bytes + 1, options.bytes - 1);
}

static bool all_ready(const struct objects *objects)
{
	const struct pollfd *polled = (const struct pollfd *)objects->outcome;
	const struct epoll_event *events = (const struct epoll_event *)objects->outcome;
	int64_t count = 0;

	for (int64_t i = 0; i < options.descriptors; i++)
		count += options.call == POLL ? polled[i].revents == POLLIN
					      : events[i].events == EPOLLIN;
	return count == options.descriptors;
}

bool call_took_effect(const struct klat_worker *worker, struct objects *objects)
{
	const struct stat *status = (const struct stat *)objects->outcome;
	struct timespec now;

	switch (options.call) {
	case READ_ZERO:
		return are_all(objects->bytes, 0);
	case READ_FILE:
		return are_all(objects->received, PATTERN);
	case WRITE_FILE:
		return pread(objects->file, objects->received, options.bytes, 0) == options.bytes &&
		       are_all(objects->received, PATTERN + 1);
	case SEND_RECV:
		return are_all(objects->received, PATTERN + 1);
	case STAT:
		return S_ISCHR(status->st_mode) && status->st_rdev == makedev(1, 3);
	case POLL:
	case EPOLL_WAIT:
		return all_ready(objects);
	case GETCPU:
	case VDSO_GETCPU:
		return (int)objects->cpu == worker->cpu;
	case GETRANDOM:
	case VDSO_GETRANDOM:
		/* Few random bytes can be what was there. */
		return options.bytes < 8 || !are_all(objects->received, -1);
	case MSEAL:
		return munmap(objects->pages, 1) && errno == EPERM;
	case CLOCK_GETTIME:
	case VDSO_CLOCK_GETTIME:
		clock_gettime(CLOCK_MONOTONIC, &now);
		return objects->time.tv_sec && now.tv_sec - objects->time.tv_sec <= 1;
	}
	return true;
}
