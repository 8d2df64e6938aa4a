/* SPDX-License-Identifier: MIT */
/* riscv64: the device tree, /proc/cpuinfo, and what firmware describes. */
#include "arch/isa.h"

#include "arch/firmware.h"

#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

bool klat_arch_cycle;

static uint64_t read_cycle(void)
{
	uint64_t now;

	__asm__ volatile("rdcycle %0" : "=r"(now));
	return now;
}

/*
 * Start `cycle`, and make it readable. Firmware stops the counter, and since Linux 6.6 the kernel
 * keeps it from user programs. An event of perf on the CPU, not on a thread, starts the counter for
 * all threads. The mapping makes the counter readable. Both last until the process ends. False if
 * the kernel cannot do this.
 */
static bool start_cycle(void)
{
	struct perf_event_attr event = { .type = PERF_TYPE_HARDWARE,
					 .size = sizeof(event),
					 .config = PERF_COUNT_HW_CPU_CYCLES,
					 .pinned = 1 };
	int fd = syscall(SYS_perf_event_open, &event, -1, sched_getcpu(), -1, PERF_FLAG_FD_CLOEXEC);

	return fd >= 0 && mmap(NULL, getpagesize(), PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED &&
	       !klat_arch_is_trapped(read_cycle) && read_cycle() != read_cycle();
}

static uint64_t read_time(void)
{
	uint64_t now;

	__asm__ volatile("rdtime %0" : "=r"(now));
	return now;
}

/* Wait for the next step of `time`. The tick at which it begins, or the tick before or after. False
 * if `time` never advances by one. */
static bool await_step(uint64_t *step, uint64_t *ticks)
{
	uint64_t before;

	/* An interrupt hides steps. */
	for (int i = 0; i < 1000; i++) {
		__asm__ volatile("rdtime %0\n"
				 "1:\trdcycle %2\n\trdtime %1\n\tbeq %0, %1, 1b"
				 : "=&r"(before), "=&r"(*step), "=&r"(*ticks));
		if (*step == before + 1)
			return true;
	}
	return false;
}

static uint64_t ticks_per_step, ticks_at_step_0;

/* The three positions of a step in the loop give three results: the lowest is one tick early. False
 * if there are not three: then `cycle` does not count with `time`. */
static bool relate_to_time(void)
{
	enum { STEPS = 100 };
	uint64_t first, step, begin, ticks, earliest, latest;

	if (!await_step(&first, &begin))
		return false;
	for (int i = 0; i < STEPS; i++)
		if (!await_step(&step, &ticks))
			return false;
	ticks_per_step = (ticks - begin + STEPS / 2) / (step - first);
	earliest = latest = ticks - step * ticks_per_step;
	for (int i = 0; i < 1000 && latest - earliest < 2; i++) {
		uint64_t at_step_0;

		for (volatile int wait = i % 7; wait; wait--)
			;
		if (!await_step(&step, &ticks))
			return false;
		at_step_0 = ticks - step * ticks_per_step;
		earliest = at_step_0 < earliest ? at_step_0 : earliest;
		latest = at_step_0 > latest ? at_step_0 : latest;
	}
	ticks_at_step_0 = earliest + 1;
	return latest - earliest == 2;
}

static bool cannot_count;

/* QEMU's `time` has 10 MHz, so it advances by one while the emulator counts 100 instructions.
 * `cycle` advances by one for each. */
void klat_arch_count_instructions(void)
{
	klat_arch_cycle = start_cycle() && relate_to_time();
	cannot_count = !klat_arch_cycle;
}

const char *klat_arch_missing(void)
{
	if (cannot_count)
		return "the counter cycle counts no instructions here: the kernel must be 6.6 or "
		       "later, with CONFIG_RISCV_PMU_SBI, and QEMU must run with -icount shift=0";
	if (__rseq_size || klat_arch_machine() == KLAT_ARCH_EMULATED)
		return NULL;
	return "the C library has not registered rseq, which proves the CPU of a stamp: the kernel "
	       "needs CONFIG_RSEQ, and GLIBC_TUNABLES must not disable it";
}

const char *klat_arch_counter(void)
{
	return klat_arch_cycle ? "cycle" : "time";
}

/*
 * The kernel's clocks are made from `time`, so with `cycle` they advance in steps of 100 ticks. The
 * clock is right when the step begins.
 */
bool klat_arch_clock_step(int64_t (*read_clock)(void), int64_t *ns, uint64_t *ticks)
{
	for (int i = 0; i < 1000 && klat_arch_cycle; i++) {
		uint64_t step;

		/* If each pass took a whole number of steps, all would meet the end of a step. */
		for (volatile int wait = i % 7; wait; wait--)
			;
		step = read_time();
		*ns = read_clock();
		*ticks = step * ticks_per_step + ticks_at_step_0;
		if (read_time() == step)
			return true;
	}
	return false;
}

/* A property of one cell, which is big-endian. It is the frequency of `time`. */
int klat_arch_frequencies(struct klat_arch_frequency frequencies[KLAT_ARCH_MAX_FREQUENCIES])
{
	FILE *file = fopen("/proc/device-tree/cpus/timebase-frequency", "re");
	unsigned char cell[4] = { 0 };
	uint32_t hz = 0;

	if (file && !klat_arch_cycle && fread(cell, 1, sizeof(cell), file) == sizeof(cell))
		hz = (uint32_t)cell[0] << 24 | cell[1] << 16 | cell[2] << 8 | cell[3];
	if (file)
		fclose(file);
	frequencies[0] = (struct klat_arch_frequency){ "device_tree", hz / 1e3 };
	return 1;
}

/*
 * - mvendorid is 0 on most CPUs that QEMU emulates.
 * - The board riscv-virtio with a real vendor is virtual, unless the device tree shows QEMU.
 * - Older kernels do not show mvendorid: on this board they count as emulated.
 * - /proc/cpuinfo without "hart" is that of another ISA's kernel: qemu-user.
 */
enum klat_arch_machine klat_arch_machine(void)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	bool is_riscv = !file, has_vendor = false, is_user_mode = false;
	char line[8192];

	while (file && fgets(line, sizeof(line), file)) {
		is_riscv |= !strncmp(line, "hart", 4);
		has_vendor |= !strncmp(line, "mvendorid", 9) && !strstr(line, ": 0x0\n");
		is_user_mode |= !strncmp(line, "uarch", 5) && strstr(line, ": qemu\n");
	}
	if (file)
		fclose(file);
	if (!is_riscv || is_user_mode || klat_arch_described_emulated() ||
	    (!has_vendor && klat_arch_tree_has("compatible", "riscv-virtio")))
		return KLAT_ARCH_EMULATED;
	return klat_arch_described_virtual() ? KLAT_ARCH_VIRTUAL : KLAT_ARCH_HARDWARE;
}

int klat_arch_interrupt_row(const char *line)
{
	return klat_arch_described_row(line, "riscv-timer");
}
