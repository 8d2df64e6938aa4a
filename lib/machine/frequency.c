/* SPDX-License-Identifier: MIT */
/*
 * The counter's frequency, measured against CLOCK_MONOTONIC_RAW, and a second figure to check it.
 *
 * On most machines the kernel computes this clock from the same counter. Then the first figure only
 * repeats the kernel's own figure. Three sources of the second figure are independent of it:
 *
 * - the ACPI PM timer, which has an oscillator of its own;
 * - NTP, which compares the kernel's clock with the network's time;
 * - CPUID, unless the kernel has its figure from CPUID.
 */
#include "machine/machine.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/timex.h>

/* The ACPI PM timer counts in 24 bits (ACPI specification, 4.8.2.1). */
#define PM_KHZ 3579.545
#define PM_MASK 0xffffffu
/* A PM timer that a slow hypervisor emulates exceeds this, and is not used. */
#define PM_MOST_UNCERTAINTY_PPM 25
#define ROUGH_NS 50000
#define CALIBRATION_NS 200000000

static int64_t now_raw(void)
{
	return klat_clock_ns(CLOCK_MONOTONIC_RAW);
}

/* A reading of another clock between two readings of the counter. */
struct reading {
	int64_t clock;
	uint64_t tsc;   /* half-way between the two */
	uint64_t width; /* ticks between the two */
};

static struct reading read_narrowest(int64_t (*read_clock)(void))
{
	struct reading best = { .width = UINT64_MAX };

	for (int i = 0; i < 64; i++) {
		uint64_t before, width;
		int64_t clock;

		if (klat_arch_clock_step(read_clock, &clock, &before))
			return (struct reading){ clock, before, 0 };
		before = klat_stamp_begin();
		clock = read_clock();
		width = klat_stamp_begin() - before;
		if (width < best.width)
			best = (struct reading){ clock, before + width / 2, width };
	}
	return best;
}

/* Within 1 %. */
static double rough_khz(void)
{
	const struct reading first = read_narrowest(now_raw);
	struct reading last;

	while (now_raw() - first.clock < ROUGH_NS)
		;
	last = read_narrowest(now_raw);
	return 1e6 * (last.tsc - first.tsc) / (last.clock - first.clock);
}

int64_t klat_ns_to_ticks(const struct klat_run *run, int64_t ns)
{
	return ns * (run->counter_khz ? run->counter_khz : rough_khz()) / 1e6;
}

double klat_frequency_of_pm(uint64_t tsc_ticks, int64_t first, int64_t last)
{
	const int64_t pm_ticks = (last - first) & PM_MASK;

	return pm_ticks ? tsc_ticks * PM_KHZ / pm_ticks : 0;
}

double klat_frequency_of_ntp(double khz, const struct timex *state)
{
	/* The rate of CLOCK_MONOTONIC against the raw clock: adjtimex(2). A tick is nominally
	 * 10,000 us. */
	const double rate = 1 + ldexp(state->freq, -16) * 1e-6 + (state->tick - 10000) / 10000.0;

	/* The kernel allows a tick of 9,000 to 11,000 us and a frequency within 500 ppm. */
	return state->status & STA_UNSYNC || fabs(rate - 1) > 0.11 ? 0 : khz / rate;
}

/* Whether the kernel's clock runs on hardware other than this counter. */
static bool is_other_hardware(const char *clock_source)
{
	static const char *const others[] = { "hpet", "acpi_pm", "jiffies", "pit",
					      "refined-jiffies" };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(others); i++)
		if (!strcmp(clock_source, others[i]))
			return true;
	return false;
}

bool klat_frequency_independent(const char *method, const char *clock_source, bool given)
{
	if (!strcmp(method, clock_source))
		return false;
	if (!strcmp(method, "acpi_pm") || !strcmp(method, "ntp") || is_other_hardware(clock_source))
		return true;
	/* With any other source, both figures come from the hypervisor. */
	return !strcmp(method, "cpuid_15h") && !strcmp(clock_source, "tsc") && !given;
}

bool klat_frequency_is_possible(double khz)
{
	return khz >= 1 && khz <= 1e12;
}

/* Use this as the second figure, unless there is one already and this one is not better. */
static void offer(struct klat_counter *tsc, const char *method, double khz)
{
	char clock_source[64];
	bool independent;

	if (!klat_frequency_is_possible(khz) || tsc->independent)
		return;
	klat_read_line(KLAT_CLOCK_SOURCE_FILE, clock_source, sizeof(clock_source));
	independent = klat_frequency_independent(method, clock_source, klat_arch_frequency_given());
	if (tsc->second_khz && !independent)
		return;
	tsc->second_khz = khz;
	tsc->independent = independent;
	tsc->difference_ppm = 1e6 * (tsc->khz / khz - 1);
	snprintf(tsc->second_method, sizeof(tsc->second_method), "%s", method);
}

bool klat_frequency_is_coarse(int64_t quantum, double khz)
{
	/* A short system call takes at least 125 ns on the slow CPUs that have such counters. A
	 * step of 10 ns, which is common on fast CPUs, is far from the limit. */
	const double coarse_ns = 12.5;

	return quantum * 1e6 / khz > coarse_ns;
}

bool klat_counter_is_coarse(void)
{
	/* In counted mode, configure() may see another counter than the run. */
	return !klat_counted() && klat_frequency_is_coarse(klat_counter_quantum(), rough_khz());
}

void klat_counter_calibrate(struct klat_counter *tsc)
{
	struct reading first, last, pm_first = { 0 }, pm_last = { 0 };
	struct klat_arch_frequency frequencies[KLAT_ARCH_MAX_FREQUENCIES];
	const bool pm = klat_arch_pm_open();
	struct timex state = { .modes = 0 };
	klat_cpu_set allowed;
	const bool allowed_known = !klat_cpus_allowed(&allowed);
	uint64_t ticks;
	int clock, count;

	memset(tsc, 0, sizeof(*tsc));
	/* The counter of another CPU can have an offset to this one. */
	if (allowed_known)
		klat_cpu_pin(sched_getcpu());
	tsc->invariant = klat_arch_counter_invariant();
	tsc->quantum = klat_counter_quantum();
	if (pm)
		pm_first = read_narrowest(klat_arch_pm_read);
	first = read_narrowest(now_raw);
	/* A seccomp filter can refuse the nap. */
	while (now_raw() - first.clock < CALIBRATION_NS)
		klat_nap(CALIBRATION_NS);
	last = read_narrowest(now_raw);
	if (pm)
		pm_last = read_narrowest(klat_arch_pm_read);
	if (allowed_known)
		klat_cpus_allow(&allowed);
	ticks = last.tsc - first.tsc;
	tsc->khz = 1e6 * ticks / (last.clock - first.clock);
	/* The clock was read at any moment between the two readings of the counter, which are less
	 * than a step too small. */
	tsc->uncertainty_ppm = 1e6 * ((first.width + last.width) / 2.0 + tsc->quantum) / ticks;

	ticks = pm_last.tsc - pm_first.tsc;
	/* After a wraparound the difference of two readings is ambiguous. */
	if (pm && ticks < PM_MASK / PM_KHZ * tsc->khz &&
	    1e6 * (pm_first.width + pm_last.width) / 2 < PM_MOST_UNCERTAINTY_PPM * (double)ticks)
		offer(tsc, "acpi_pm", klat_frequency_of_pm(ticks, pm_first.clock, pm_last.clock));
	if (pm)
		klat_arch_pm_close();
	clock = adjtimex(&state);
	if (clock >= 0 && clock != TIME_ERROR)
		offer(tsc, "ntp", klat_frequency_of_ntp(tsc->khz, &state));
	count = klat_arch_frequencies(frequencies);
	for (int i = 0; i < count; i++)
		offer(tsc, frequencies[i].source, frequencies[i].khz);
}
