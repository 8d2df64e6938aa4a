/* SPDX-License-Identifier: MIT */
/* Page faults that locking does not prevent. */
#ifndef KLAT_PREFAULT_H
#define KLAT_PREFAULT_H

/*
 * Read each page of the caller's mappings that is private and only to be read. Write to each page
 * that is shared, without a change. mlockall() does neither, and is enough only where the CPU sets
 * the accessed and the dirty bit itself. Other CPUs take a fault: arm64 without FEAT_HAFDBS,
 * riscv64 without Svadu. After a fork, all pages that are only read count as not accessed, and
 * there are no page tables for shared memory. A program that maps shared memory later, as the rings
 * of io_uring, calls it again.
 */
void klat_prefault(void);

#endif
