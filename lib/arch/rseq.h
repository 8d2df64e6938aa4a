/* SPDX-License-Identifier: MIT */
/* Part of arch.h: for an ISA whose counter does not name the CPU. */
#ifndef KLAT_RSEQ_H
#define KLAT_RSEQ_H

#include <sched.h>
#include <sys/rseq.h>

/* The CPU is read after the counter: a thread that moves between the two shows as moved. The kernel
 * keeps cpu_id of the C library's rseq area up to date. Without this area, klat measures only in an
 * emulator: see klat_arch_missing(). */
static inline uint64_t klat_arch_stamp_end(uint32_t *cpu_identity)
{
	const struct rseq *rseq =
		(const struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
	uint64_t now = klat_stamp_begin();

	*cpu_identity = __atomic_load_n(&rseq->cpu_id, __ATOMIC_RELAXED);
	if (__builtin_expect((int32_t)*cpu_identity < 0, 0))
		*cpu_identity = sched_getcpu();
	return now;
}

#endif
