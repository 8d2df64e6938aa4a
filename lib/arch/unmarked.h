/* SPDX-License-Identifier: MIT */
/* Part of arch.h: for an ISA on which a user program does not see interrupts. */
#ifndef KLAT_UNMARKED_H
#define KLAT_UNMARKED_H

#define KLAT_ARCH_HAS_MARK 0

static inline void klat_arch_mark(void)
{
}

static inline bool klat_arch_mark_lost(void)
{
	return false;
}

#endif
