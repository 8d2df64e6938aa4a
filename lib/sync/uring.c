/* SPDX-License-Identifier: MIT */
/*
 * Waits and posts by io_uring, with the kernel's interface: io_uring_setup(2), io_uring_enter(2).
 * The thread that waits makes its ring, because the kernel lets only one thread use the fastest
 * kind.
 */
#include "sync/uring.h"

#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

/* Operations of enum io_uring_op that older headers lack. */
enum { OP_READ = 22, OP_MSG_RING = 40, OP_FUTEX_WAIT = 51, OPERATIONS = 256 };
enum { ENTRIES = 8 };
/* A completion of the ring's own request. A message has 0. */
enum { OF_REQUEST = 1 };

struct ring {
	int fd;
	uint32_t *sq_tail, *sq_array, *cq_head, *cq_tail, sq_mask, cq_mask;
	struct io_uring_sqe *requests;
	struct io_uring_cqe *completions;
};

struct sync_uring {
	struct ring ring;
	uint32_t tokens KLAT_ALIGNED, waiters;
	uint64_t count;
	int eventfd;
	struct sync_uring *poster;
};

static void *map(const struct ring *ring, size_t size, off_t offset)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
		    offset);
}

/* The offsets are of io_uring_setup(2). */
static int map_ring(struct ring *ring, const struct io_uring_params *params)
{
	const struct io_sqring_offsets *sq = &params->sq_off;
	const struct io_cqring_offsets *cq = &params->cq_off;
	const size_t sq_size = sq->array + params->sq_entries * sizeof(uint32_t),
		     cq_size = cq->cqes + params->cq_entries * sizeof(struct io_uring_cqe);
	char *base = map(ring, sq_size > cq_size ? sq_size : cq_size, IORING_OFF_SQ_RING);

	ring->requests = map(ring, params->sq_entries * sizeof(*ring->requests), IORING_OFF_SQES);
	if (base == MAP_FAILED || ring->requests == MAP_FAILED)
		return -errno;
	ring->sq_tail = (uint32_t *)(base + sq->tail);
	ring->sq_array = (uint32_t *)(base + sq->array);
	ring->sq_mask = *(uint32_t *)(base + sq->ring_mask);
	ring->cq_head = (uint32_t *)(base + cq->head);
	ring->cq_tail = (uint32_t *)(base + cq->tail);
	ring->cq_mask = *(uint32_t *)(base + cq->ring_mask);
	ring->completions = (struct io_uring_cqe *)(base + cq->cqes);
	return 0;
}

static int make_ring(struct ring *ring)
{
	/* Completions only when asked for, if the kernel has that (6.1). */
	static const uint32_t ways[] = { IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
					 IORING_SETUP_COOP_TASKRUN, 0 };
	struct io_uring_params params;

	ring->fd = -1;
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(ways) && ring->fd < 0; i++) {
		params = (struct io_uring_params){ .flags = ways[i] };
		ring->fd = syscall(SYS_io_uring_setup, ENTRIES, &params);
		if (ring->fd < 0 && errno != EINVAL)
			return -errno;
	}
	if (ring->fd < 0)
		return -errno;
	return params.features & IORING_FEAT_SINGLE_MMAP ? map_ring(ring, &params) : -ENOSYS;
}

const char *sync_uring_missing(enum sync_kind kind)
{
	const int operation = kind == SYNC_URING_FUTEX     ? OP_FUTEX_WAIT
			      : kind == SYNC_URING_MESSAGE ? OP_MSG_RING
							   : OP_READ;
	const size_t size =
		sizeof(struct io_uring_probe) + OPERATIONS * sizeof(struct io_uring_probe_op);
	struct io_uring_params params = { 0 };
	const int fd = syscall(SYS_io_uring_setup, 1, &params);
	struct io_uring_probe *probe = calloc(1, size);
	int error = fd < 0 ? errno : 0;
	bool there = false;

	if (fd >= 0 && probe) {
		if (syscall(SYS_io_uring_register, fd, IORING_REGISTER_PROBE, probe, OPERATIONS))
			error = errno;
		else
			there = operation <= probe->last_op &&
				probe->ops[operation].flags & IO_URING_OP_SUPPORTED;
	}
	free(probe);
	if (fd >= 0)
		close(fd);
	if (there)
		return NULL;
	if (error == ENOMEM)
		return "no memory for a ring of io_uring: a limit (ulimit -l, memory.max) or "
		       "memory is exhausted";
	/* Kernels without probes say EINVAL. */
	if (error && error != EINVAL)
		return "io_uring is missing, or forbidden by sysctl kernel.io_uring_disabled or a "
		       "seccomp filter";
	if (kind == SYNC_URING_FUTEX)
		return "this kernel's io_uring cannot wait for a futex, which Linux 6.7 brought";
	if (kind == SYNC_URING_MESSAGE)
		return "this kernel's io_uring has no messages between rings, which Linux 5.18 "
		       "brought";
	return "this kernel's io_uring cannot read, which Linux 5.6 brought";
}

/* Put a request into the ring, without a call. */
static inline void request(struct ring *ring, const struct io_uring_sqe *filled)
{
	const uint32_t tail = *ring->sq_tail, at = tail & ring->sq_mask;

	ring->requests[at] = *filled;
	ring->sq_array[at] = at;
	__atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
}

static inline int enter(struct ring *ring, unsigned submit, unsigned wait)
{
	long done;

	do
		done = syscall(SYS_io_uring_enter, ring->fd, submit, wait,
			       wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
	while (done < 0 && errno == EINTR);
	return done < 0 ? -errno : 0;
}

/* Take all completions. Returns the result of the ring's own request; without one, that of the last
 * message. */
static inline int take(struct ring *ring)
{
	uint32_t head = *ring->cq_head, tail = __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE);
	int result = 0;

	for (; head != tail; head++) {
		const struct io_uring_cqe *completion = &ring->completions[head & ring->cq_mask];

		if (completion->user_data == OF_REQUEST || result >= 0)
			result = completion->res;
	}
	__atomic_store_n(ring->cq_head, tail, __ATOMIC_RELEASE);
	return result;
}

static inline bool is_empty(const struct ring *ring)
{
	return *ring->cq_head == __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE);
}

/* Submit a request and sleep until it is complete. */
static inline int complete(struct ring *ring, const struct io_uring_sqe *filled)
{
	int err;

	request(ring, filled);
	err = enter(ring, 1, 1);
	/* A signal can end the wait after the submission. */
	while (!err && is_empty(ring))
		err = enter(ring, 0, 1);
	return err ?: take(ring);
}

static int sleep_futex(struct sync *sync, uint32_t *tokens)
{
	const struct io_uring_sqe wait = { .opcode = OP_FUTEX_WAIT,
					   .fd = SYNC_FUTEX_32_PRIVATE,
					   .addr = (uintptr_t)tokens,
					   .addr3 = FUTEX_BITSET_MATCH_ANY,
					   .user_data = OF_REQUEST };
	const int result = complete(&sync->uring->ring, &wait);

	return result == -EAGAIN || result > 0 ? 0 : result;
}

int sync_uring_wait_futex(struct sync *sync)
{
	return sync_take_tokens(sync, &sync->uring->tokens, &sync->uring->waiters, sleep_futex);
}

int sync_uring_post_futex(struct sync *sync)
{
	struct sync_uring *uring = sync->uring;

	__atomic_fetch_add(&uring->tokens, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&uring->waiters, __ATOMIC_SEQ_CST))
		sync_futex(&uring->tokens, FUTEX_WAKE_PRIVATE, 1);
	return 0;
}

int sync_uring_wait_eventfd(struct sync *sync)
{
	struct sync_uring *uring = sync->uring;
	const struct io_uring_sqe read = { .opcode = OP_READ,
					   .fd = uring->eventfd,
					   .addr = (uintptr_t)&uring->count,
					   .len = sizeof(uring->count),
					   .user_data = OF_REQUEST };
	const int result = complete(&uring->ring, &read);

	return result < 0 ? result : 0;
}

int sync_uring_post_eventfd(struct sync *sync)
{
	static const uint64_t one = 1;

	return write(sync->uring->eventfd, &one, sizeof(one)) == sizeof(one) ? 0 : -errno;
}

int sync_uring_wait_message(struct sync *sync)
{
	struct ring *ring = &sync->uring->ring;
	int err = 0;

	while (!err && is_empty(ring))
		err = enter(ring, 0, 1);
	return err ?: take(ring);
}

/* Without a completion for the sender, unless it fails. */
int sync_uring_post_message(struct sync *sync)
{
	struct ring *ring = &sync->uring->poster->ring;
	const struct io_uring_sqe message = { .opcode = OP_MSG_RING,
					      .fd = sync->uring->ring.fd,
					      .flags = IOSQE_CQE_SKIP_SUCCESS,
					      .user_data = OF_REQUEST };

	request(ring, &message);
	return enter(ring, 1, 0);
}

int sync_uring_init(struct sync *sync)
{
	sync->uring = aligned_alloc(KLAT_CACHE_LINE, sizeof(*sync->uring));
	if (!sync->uring)
		return -ENOMEM;
	memset(sync->uring, 0, sizeof(*sync->uring));
	sync->uring->ring.fd = -1;
	sync->uring->eventfd = eventfd(0, EFD_CLOEXEC);
	return sync->uring->eventfd < 0 ? -errno : 0;
}

int sync_uring_begin(struct sync_uring *uring)
{
	return make_ring(&uring->ring);
}

void sync_uring_join(struct sync_uring *a, struct sync_uring *b)
{
	a->poster = b;
	b->poster = a;
}
