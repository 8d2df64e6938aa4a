/* SPDX-License-Identifier: MIT */
/* Page faults that locking does not prevent. */
#ifndef KLAT_PREFAULT_H
#define KLAT_PREFAULT_H

/*
 * Read each page of the private mappings that cannot be written. Write to each page of the shared
 * mappings that can, without a change. mlockall() does not set a page's accessed and dirty bits. A
 * CPU that does not set them itself takes a page fault at the first access: arm64 without
 * FEAT_HAFDBS, riscv64 without Svadu. After a fork, the child's pages that cannot be written are
 * not marked as accessed, and it has no page tables for shared memory. Call it again after mapping
 * shared memory, for example the rings of io_uring.
 */
void klat_prefault(void);

#endif
