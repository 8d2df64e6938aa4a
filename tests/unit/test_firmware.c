/* SPDX-License-Identifier: MIT */
/* What the ISAs without CPUID share. */
#include "arch/firmware.h"
#include "arch/isa.h"
#include "support.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

/* A device tree: names of properties and their strings. */
struct property {
	const char *name, *value;
};

static const struct property *tree;

/* With a tree, each file is one of its properties, or missing. */
FILE *__wrap_fopen(const char *path, const char *mode)
{
	if (!tree)
		return __real_fopen(path, mode);
	for (const struct property *p = tree; p->name; p++)
		if (!strncmp(path, "/proc/device-tree/", 18) && !strcmp(path + 18, p->name))
			return fmemopen((char *)p->value, strlen(p->value) + 1, "r");
	return NULL;
}

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

TEST(a_counter_of_time_does_not_pass_as_one_of_instructions)
{
	klat_arch_count_instructions();
	assert_non_null(klat_arch_missing());
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

TEST(a_device_tree_shows_an_emulated_cpu)
{
	static const struct {
		struct property tree[4];
		bool is_virtual, is_emulated;
	} cases[] = {
		/* QEMU: -cpu cortex-a57, and a CPU of KVM or of macOS */
		{ { { "compatible", "linux,dummy-virt" },
		    { "fw-cfg@9020000/compatible", "qemu,fw-cfg-mmio" },
		    { "cpus/cpu@0/compatible", "arm,cortex-a57" } },
		  true,
		  true },
		{ { { "compatible", "linux,dummy-virt" },
		    { "fw-cfg@9020000/compatible", "qemu,fw-cfg-mmio" },
		    { "cpus/cpu@0/compatible", "arm,arm-v8" } },
		  true,
		  false },
		{ { { "compatible", "linux,dummy-virt" },
		    { "fw-cfg@9020000/compatible", "qemu,fw-cfg-mmio" },
		    { "cpus/cpu@0/compatible", "arm,armv8" } },
		  true,
		  false },
		/* kvmtool names a real Cortex-A57. */
		{ { { "compatible", "linux,dummy-virt" },
		    { "cpus/cpu@0/compatible", "arm,cortex-a57" } },
		  true,
		  false },
		/* QEMU of riscv64: emulated, and KVM */
		{ { { "compatible", "riscv-virtio" },
		    { "soc/clint@2000000/compatible", "riscv,clint0" },
		    { "cpus/cpu@0/compatible", "riscv" } },
		  true,
		  true },
		{ { { "compatible", "riscv-virtio" }, { "cpus/cpu@0/compatible", "riscv" } },
		  true,
		  false },
		/* boards */
		{ { { "compatible", "sifive,hifive-unleashed-a00" },
		    { "soc/clint@2000000/compatible", "riscv,clint0" } },
		  false,
		  false },
		{ { { "compatible", "raspberrypi,4-model-b" },
		    { "cpus/cpu@0/compatible", "arm,cortex-a72" } },
		  false,
		  false },
	};

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(cases); i++) {
		bool is_virtual, is_emulated;

		tree = cases[i].tree;
		is_virtual = klat_arch_described_virtual();
		is_emulated = klat_arch_described_emulated();
		tree = NULL;
		assert_int_equal(is_virtual, cases[i].is_virtual);
		assert_int_equal(is_emulated, cases[i].is_emulated);
	}
}
