/* SPDX-License-Identifier: MIT */
/*
 * The counter's frequency, measured against CLOCK_MONOTONIC_RAW, and a second figure beside it.
 *
 * Where the kernel makes its clock from this counter, the first figure is the kernel's own figure,
 * read back. So the second figure needs an independent source, and the record says whether it is
 * independent: another oscillator (the ACPI PM timer), the network's time (NTP), or CPUID, unless
 * the kernel took its own figure from CPUID.
 */
#include "internal.h"

#include <cpuid.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#define HYPERVISOR_LEAF 0x40000000u
/* Of the ACPI PM timer, which counts in 24 bits (ACPI specification, 4.8.2.1). */
#define PM_KHZ 3579.545
#define PM_MASK 0xffffffu
/* In ppm. A PM timer read through a slow hypervisor is less exact, and is left out. */
#define PM_COARSEST 25

static bool hypervisor_present(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & 1u << 31);
}

static int64_t now_raw(void)
{
	return klat_clock_ns(CLOCK_MONOTONIC_RAW);
}

/* A clock's reading and the counter at its middle. */
struct reading {
	int64_t clock;
	uint64_t tsc, width; /* of the bracket, in ticks */
};

static uint16_t pm_port;

static int64_t read_pm(void)
{
	return inl(pm_port);
}

/* From the tightest of several brackets. */
static struct reading read_tightest(int64_t (*read_clock)(void))
{
	struct reading best = { .width = UINT64_MAX };

	for (int i = 0; i < 64; i++) {
		uint64_t before = klat_stamp_begin();
		int64_t clock = read_clock();
		uint64_t width = klat_stamp_begin() - before;

		if (width < best.width)
			best = (struct reading){ clock, before + width / 2, width };
	}
	return best;
}

static uint32_t little_endian(const uint8_t *bytes)
{
	return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Its port, from the FADT's fields PM_TMR_BLK and PM_TMR_LEN; 0 where there is none, or no leave to
 * read it. */
static uint16_t find_pm(void)
{
	int fd = open("/sys/firmware/acpi/tables/FACP", O_RDONLY | O_CLOEXEC);
	uint8_t table[92];
	uint32_t port;
	ssize_t size;

	if (fd < 0)
		return 0;
	size = read(fd, table, sizeof(table));
	close(fd);
	if (size < (ssize_t)sizeof(table) || table[91] != 4)
		return 0;
	port = little_endian(table + 76);
	return port && port <= UINT16_MAX - 4 && !ioperm(port, 4, 1) ? port : 0;
}

double klat_frequency_of_pm(uint64_t tsc_ticks, int64_t first, int64_t last)
{
	const int64_t pm_ticks = (last - first) & PM_MASK;

	return pm_ticks ? tsc_ticks * PM_KHZ / pm_ticks : 0;
}

double klat_frequency_of_ntp(double khz, const struct timex *state)
{
	/* The kernel's CLOCK_MONOTONIC is the raw clock times this. */
	const double rate = 1 + ldexp(state->freq, -16) * 1e-6 + (state->tick - 10000) / 10000.0;

	return state->status & STA_UNSYNC ? 0 : khz / rate;
}

static double khz_of_ntp(double khz)
{
	struct timex state = { .modes = 0 };

	return adjtimex(&state) == TIME_ERROR ? 0 : klat_frequency_of_ntp(khz, &state);
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
 * time_shift. The event is a CPU's, which takes a privilege: for a task's, every context switch on
 * the machine looks for events until a second after it is closed (account_event() and
 * unaccount_event() in kernel/events/core.c), which was 70 to 140 ns of a round trip of 5 us.
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

/* "tsc: Detected 2300.000 MHz TSC" or "… Refined TSC clocksource calibration: 2299.998 MHz", the
 * later line winning. */
static double khz_of_kernel_log(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char line[8192];
	double khz = 0;
	ssize_t size;

	if (fd < 0)
		return 0;
	/* Each read is one message; EPIPE says that the log overtook us. */
	while ((size = read(fd, line, sizeof(line) - 1)) > 0 || (size < 0 && errno == EPIPE)) {
		char *number;

		if (size < 0)
			continue;
		line[size] = 0;
		if (!strstr(line, ";tsc: ") || !strstr(line, " MHz"))
			continue;
		number = strstr(line, " MHz");
		while (number > line && (isdigit((unsigned char)number[-1]) || number[-1] == '.'))
			number--;
		khz = strtod(number, NULL) * 1e3;
	}
	close(fd);
	return khz;
}

/* What kernels make their clock from when it is not this counter. */
static bool is_another_clock(const char *clock_source)
{
	static const char *const others[] = { "hpet", "acpi_pm", "jiffies", "pit",
					      "refined-jiffies" };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(others); i++)
		if (!strcmp(clock_source, others[i]))
			return true;
	return false;
}

bool klat_frequency_independent(const char *method, const char *clock_source, bool told)
{
	if (!strcmp(method, clock_source))
		return false;
	if (!strcmp(method, "acpi_pm") || !strcmp(method, "ntp") || is_another_clock(clock_source))
		return true;
	/* Under another source than "tsc" both figures come from the hypervisor. */
	return !strcmp(method, "cpuid_15h") && !strcmp(clock_source, "tsc") && !told;
}

/* Whether the kernel was told the frequency instead of measuring it: a flag in /proc/cpuinfo. */
static bool kernel_was_told(void)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[8192];
	bool told = false;

	while (file && !told && fgets(line, sizeof(line), file))
		told = !strncmp(line, "flags", 5) && strstr(line, " tsc_known_freq");
	if (file)
		fclose(file);
	return told;
}

/* Take this second figure unless there is one already that is as good. */
static void offer(struct klat_counter *tsc, const char *method, double khz)
{
	char clock_source[64] = "";
	bool independent;

	if (!khz || tsc->independent)
		return;
	klat_read_small("/sys/devices/system/clocksource/clocksource0/current_clocksource",
			clock_source, sizeof(clock_source));
	clock_source[strcspn(clock_source, "\n")] = 0;
	independent = klat_frequency_independent(method, clock_source, kernel_was_told());
	if (tsc->second_khz && !independent)
		return;
	tsc->second_khz = khz;
	tsc->independent = independent;
	tsc->difference_ppm = 1e6 * (tsc->khz / khz - 1);
	snprintf(tsc->second_method, sizeof(tsc->second_method), "%s", method);
}

void klat_counter_calibrate(struct klat_counter *tsc)
{
	struct reading first, last, pm_first = { 0 }, pm_last = { 0 };
	uint64_t ticks;

	memset(tsc, 0, sizeof(*tsc));
	tsc->invariant = klat_counter_invariant();
	tsc->quantum = klat_counter_quantum();
	pm_port = find_pm();
	if (pm_port)
		pm_first = read_tightest(read_pm);
	first = read_tightest(now_raw);
	klat_nap(200000000);
	last = read_tightest(now_raw);
	if (pm_port)
		pm_last = read_tightest(read_pm);
	ticks = last.tsc - first.tsc;
	tsc->khz = 1e6 * ticks / (last.clock - first.clock);
	/* Each reading lies anywhere in its bracket. */
	tsc->uncertainty_ppm = 1e6 * ((first.width + last.width) / 2.0) / ticks;

	ticks = pm_last.tsc - pm_first.tsc;
	/* Before it has gone round. */
	if (pm_port && ticks < PM_MASK / PM_KHZ * tsc->khz &&
	    1e6 * (pm_first.width + pm_last.width) / 2 < PM_COARSEST * (double)ticks)
		offer(tsc, "acpi_pm", klat_frequency_of_pm(ticks, pm_first.clock, pm_last.clock));
	if (pm_port)
		ioperm(pm_port, 4, 0);
	offer(tsc, "ntp", khz_of_ntp(tsc->khz));
	offer(tsc, "cpuid_15h", khz_of_cpuid());
	offer(tsc, "hypervisor_leaf", khz_of_hypervisor());
	offer(tsc, "perf_time_mult", khz_of_perf());
	offer(tsc, "kernel_log", khz_of_kernel_log());
}
