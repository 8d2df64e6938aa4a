/* SPDX-License-Identifier: MIT */
/* x86-64: CPUID, MSRs, the ports of the PM timer, and the names of interrupts. */
#include "arch/isa.h"

#include <cpuid.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HYPERVISOR_LEAF 0x40000000u
#define MSR_SMI_COUNT 0x34

static bool hypervisor_present(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & 1u << 31);
}

static bool cannot_count;

static void take_turns(uint64_t turns)
{
	__asm__ volatile("1:\tdec %0\n\tjnz 1b" : "+r"(turns) : : "cc");
}

/* In an emulator that counts instructions, each advances the counter by one. */
void klat_arch_count_instructions(void)
{
	cannot_count = !klat_arch_counts(take_turns);
}

const char *klat_arch_missing(void)
{
	unsigned int a, b, c, d;

	if (cannot_count)
		return "the counter does not count instructions here: QEMU must run with -icount "
		       "shift=0";
	return __get_cpuid(0x80000001, &a, &b, &c, &d) && (d & 1u << 27)
		       ? NULL
		       : "this CPU has no RDTSCP instruction";
}

const char *klat_arch_counter(void)
{
	return "tsc";
}

/* CPUID 80000007h EDX bit 8 is both constant_tsc and nonstop_tsc. */
bool klat_arch_counter_invariant(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
}

bool klat_arch_counter_traced(void)
{
	return true;
}

/* CPUID leaf 15h: crystal frequency times a ratio. */
static double khz_of_cpuid(void)
{
	unsigned int denominator, numerator, crystal, d;

	if (__get_cpuid_max(0, NULL) < 0x15)
		return 0;
	__cpuid_count(0x15, 0, denominator, numerator, crystal, d);
	return denominator && numerator && crystal ? crystal / 1e3 * numerator / denominator : 0;
}

/* Leaf 40000010h, which several hypervisors share: the guest counter's frequency in kHz. */
static double khz_of_hypervisor(void)
{
	unsigned int a, b, c, d;

	if (!hypervisor_present())
		return 0;
	__cpuid(HYPERVISOR_LEAF, a, b, c, d);
	if (a < HYPERVISOR_LEAF + 0x10)
		return 0;
	__cpuid(HYPERVISOR_LEAF + 0x10, a, b, c, d);
	return a;
}

/*
 * The kernel's own conversion, in the mmap page of any perf event: ns = ticks * time_mult >>
 * time_shift. The event belongs to a CPU and not to a task, which needs a privilege. After a task's
 * event is closed, every context switch on the machine looks for events for a second
 * (account_event() and unaccount_event() in kernel/events/core.c): 70 to 140 ns of a round trip of
 * 5 us.
 */
static double khz_of_perf(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE,
					.size = sizeof(attr),
					.config = PERF_COUNT_SW_DUMMY,
					.exclude_kernel = 1 };
	long page_size = sysconf(_SC_PAGESIZE);
	struct perf_event_mmap_page *page;
	double khz = 0;
	int fd = syscall(SYS_perf_event_open, &attr, -1, sched_getcpu(), -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return 0;
	page = mmap(NULL, page_size, PROT_READ, MAP_SHARED, fd, 0);
	if (page != MAP_FAILED) {
		if (page->cap_user_time && page->time_mult)
			khz = 1e6 * ldexp(1, page->time_shift) / page->time_mult;
		munmap(page, page_size);
	}
	close(fd);
	return khz;
}

/*
 * The last of "tsc: Detected 2300.000 MHz TSC" and "tsc: Refined TSC clocksource calibration:
 * 2299.998 MHz".
 */
static double khz_of_kernel_log(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char line[8192];
	double khz = 0;
	ssize_t size;

	if (fd < 0)
		return 0;
	/* Each read is one message. EPIPE: the kernel overwrote messages that were not yet read. */
	while ((size = read(fd, line, sizeof(line) - 1)) > 0 || (size < 0 && errno == EPIPE)) {
		char *number;

		if (size < 0)
			continue;
		line[size] = 0;
		number = strstr(line, ";tsc: ") ? strstr(line, " MHz") : NULL;
		if (!number)
			continue;
		while (number > line && (isdigit((unsigned char)number[-1]) || number[-1] == '.'))
			number--;
		khz = strtod(number, NULL) * 1e3;
	}
	close(fd);
	return khz;
}

int klat_arch_frequencies(struct klat_arch_frequency frequencies[KLAT_ARCH_MAX_FREQUENCIES])
{
	frequencies[0] = (struct klat_arch_frequency){ "cpuid_15h", khz_of_cpuid() };
	frequencies[1] = (struct klat_arch_frequency){ "hypervisor_leaf", khz_of_hypervisor() };
	frequencies[2] = (struct klat_arch_frequency){ "perf_time_mult", khz_of_perf() };
	frequencies[3] = (struct klat_arch_frequency){ "kernel_log", khz_of_kernel_log() };
	return 4;
}

/* A flag in /proc/cpuinfo says that CPUID or a hypervisor gave the frequency. */
bool klat_arch_frequency_given(void)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[8192];
	bool given = false;

	while (file && !given && fgets(line, sizeof(line), file))
		given = !strncmp(line, "flags", 5) && strstr(line, " tsc_known_freq");
	if (file)
		fclose(file);
	return given;
}

static uint16_t pm_port;

/* The port is in the FADT's fields PM_TMR_BLK and PM_TMR_LEN. */
bool klat_arch_pm_open(void)
{
	int fd = open("/sys/firmware/acpi/tables/FACP", O_RDONLY | O_CLOEXEC);
	uint8_t table[92];
	uint32_t port;
	ssize_t size;

	if (fd < 0)
		return false;
	size = read(fd, table, sizeof(table));
	close(fd);
	if (size < (ssize_t)sizeof(table) || table[91] != 4)
		return false;
	memcpy(&port, table + 76, sizeof(port)); /* little-endian, as this CPU */
	if (!port || port > UINT16_MAX - 4 || ioperm(port, 4, 1))
		return false;
	pm_port = port;
	return true;
}

int64_t klat_arch_pm_read(void)
{
	return inl(pm_port);
}

void klat_arch_pm_close(void)
{
	ioperm(pm_port, 4, 0);
}

enum klat_arch_machine klat_arch_machine(void)
{
	unsigned int a, id[3];

	if (!hypervisor_present())
		return KLAT_ARCH_HARDWARE;
	__cpuid(HYPERVISOR_LEAF, a, id[0], id[1], id[2]);
	return memcmp(id, "TCGTCGTCGTCG", sizeof(id)) ? KLAT_ARCH_VIRTUAL : KLAT_ARCH_EMULATED;
}

int64_t klat_arch_smi_count(int cpu)
{
	char path[64];
	uint64_t count;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/dev/cpu/%d/msr", cpu);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	got = pread(fd, &count, sizeof(count), MSR_SMI_COUNT);
	close(fd);
	return got == sizeof(count) ? (int64_t)count : -1;
}

/* By INVLPGB: CPUID 80000008h EBX bit 3. /proc/cpuinfo does not show it. Linux uses it since 6.15.
 */
int klat_arch_broadcast_cpus(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000008, &a, &b, &c, &d) && (b & 1u << 3) ? 4 : 0;
}

int klat_arch_interrupt_row(const char *line)
{
	static const char *const names[KLAT_IRQ_ROWS] = { "RES:", "CAL:", "TLB:", "LOC:" };

	for (int row = 0; row < KLAT_IRQ_ROWS; row++)
		if (!strncmp(line, names[row], 4))
			return row;
	return -1;
}
