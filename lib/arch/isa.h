/* SPDX-License-Identifier: MIT */
/*
 * What each lib/arch/<isa>/ defines, beside the inline functions of its arch.h. This is the lowest
 * layer: it calls nothing of klat. default.c has the functions that do the same on most ISAs.
 */
#ifndef KLAT_ISA_H
#define KLAT_ISA_H

#include <stdbool.h>
#include <stdint.h>

#include "arch.h"

/* The counter */

/* Whether read() ends with SIGILL or SIGSEGV. This is what a program gets if it may not read a
 * counter: the kernel (PR_SET_TSC of prctl(2)) or firmware (scounteren.TM on riscv64) can forbid
 * it. For the only thread of a process. */
bool klat_arch_is_trapped(uint64_t (*read)(void));
/* Make the stamps count instructions from now on, in an emulator that counts them. If this fails,
 * klat_arch_missing() says why. */
void klat_arch_count_instructions(void);
/* Whether each instruction advances the counter by one. take_turns() must run a loop with two
 * instructions in each turn. */
bool klat_arch_counts(void (*take_turns)(uint64_t turns));
/* Why the stamps of arch.h do not work here, or NULL. */
const char *klat_arch_missing(void);
/* The name of the register that the stamps read. */
const char *klat_arch_counter(void);
/*
 * Read a clock of the kernel, and the counter at the moment for which the clock's time is right.
 * False if the clock advances with the counter, or if an interrupt disturbed each attempt: then
 * read the clock between two stamps.
 */
bool klat_arch_clock_step(int64_t (*read_clock)(void), int64_t *ns, uint64_t *ticks);
/* Whether the counter runs at one rate through frequency changes and idle states. */
bool klat_arch_counter_invariant(void);
/* Whether a trace clock of the kernel reads the counter of arch.h. klat.tracing.instance has the
 * name of this clock. */
bool klat_arch_counter_traced(void);

/* The counter's frequency by the CPU, the hypervisor or the kernel. */
struct klat_arch_frequency {
	const char *source;
	double khz; /* 0: not known */
};

enum { KLAT_ARCH_MAX_FREQUENCIES = 4 };

/* Fill `frequencies`, the best source first. Return how many. */
int klat_arch_frequencies(struct klat_arch_frequency frequencies[KLAT_ARCH_MAX_FREQUENCIES]);
/* Whether the kernel was given the counter's frequency and did not measure it. */
bool klat_arch_frequency_given(void);

/* The ACPI PM timer. False where it cannot be read. */
bool klat_arch_pm_open(void);
int64_t klat_arch_pm_read(void);
void klat_arch_pm_close(void);

/* The machine */

enum klat_arch_machine {
	KLAT_ARCH_HARDWARE,
	KLAT_ARCH_VIRTUAL,
	KLAT_ARCH_EMULATED, /* by a program: time means nothing */
};

enum klat_arch_machine klat_arch_machine(void);

/* How many system-management interrupts, of firmware, this CPU took since boot; -1: unknown. */
int64_t klat_arch_smi_count(int cpu);

/* The number of active CPUs of a process from which on the kernel may flush their TLBs without an
 * interrupt that it counts. 0: it never does. */
int klat_arch_broadcast_cpus(void);

/* Interrupts that klat counts. */
enum {
	KLAT_IRQ_RES, /* reschedule */
	KLAT_IRQ_CAL, /* function call */
	KLAT_IRQ_TLB, /* TLB shootdown */
	KLAT_IRQ_LOC, /* local timer */
	KLAT_IRQ_ROWS
};

/* Which of them a line of /proc/interrupts counts, without its leading blanks; -1: none. */
int klat_arch_interrupt_row(const char *line);

#endif
