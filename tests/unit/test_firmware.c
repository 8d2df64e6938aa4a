/* SPDX-License-Identifier: MIT */
/* What the ISAs without CPUID share. */
#include "arch/firmware.h"
#include "arch/isa.h"
#include "support.h"

#include <signal.h>
#include <string.h>

static uint64_t illegal_instruction(void)
{
	raise(SIGILL);
	return 1;
}

static uint64_t refused_access(void)
{
	raise(SIGSEGV);
	return 1;
}

static uint64_t counter(void)
{
	return klat_ticks();
}

TEST(a_counter_that_the_kernel_forbids_is_trapped)
{
	struct sigaction before = { .sa_handler = SIG_IGN }, after;

	sigaction(SIGILL, &before, NULL);
	assert_true(klat_arch_is_trapped(illegal_instruction));
	assert_true(klat_arch_is_trapped(refused_access));
	assert_false(klat_arch_is_trapped(counter));
	sigaction(SIGILL, NULL, &after);
	assert_ptr_equal(after.sa_handler, SIG_IGN);
}

TEST(this_isa_may_read_its_counter)
{
	assert_null(klat_arch_missing());
}

/* Lines of Debian's 6.1 and 6.12, without their leading blanks. */
TEST(rows_are_found_by_their_descriptions)
{
	static const struct {
		const char *line, *timer;
		int row;
	} rows[] = {
		{ "IPI0:        12         15       Rescheduling interrupts", "arch_timer",
		  KLAT_IRQ_RES },
		{ "IPI1:       312        315       Function call interrupts", "arch_timer",
		  KLAT_IRQ_CAL },
		{ "IPI2:         0          0       CPU stop interrupts", "arch_timer", -1 },
		{ "IPI5:         0          0       IRQ work interrupts", "arch_timer", -1 },
		{ "11:       2710       2683     GICv3  27 Level     arch_timer", "arch_timer",
		  KLAT_IRQ_LOC },
		{ "11:       2710       2683     GICv3  27 Level     arch_timer", "riscv-timer",
		  -1 },
		{ "5:        2710       2683  RISC-V INTC   5 Edge      riscv-timer", "riscv-timer",
		  KLAT_IRQ_LOC },
		{ "Err:          0", "arch_timer", -1 },
	};

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(rows); i++)
		assert_int_equal(klat_arch_described_row(rows[i].line, rows[i].timer), rows[i].row);
}
