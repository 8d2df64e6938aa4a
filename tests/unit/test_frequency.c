/* SPDX-License-Identifier: MIT */
/* The counter's frequency and the second figure beside it. */
#include "support.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/timex.h>

static void assert_independent(bool wanted, const char *method, const char *source, bool told)
{
	if (klat_frequency_independent(method, source, told) != wanted)
		fail_msg("%s under %s, kernel told: %d", method, source, told);
}

TEST(another_oscillator_and_the_networks_time_are_independent)
{
	static const char *const sources[] = { "tsc", "kvm-clock", "hyperv_clocksource_tsc_page" };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(sources); i++) {
		assert_independent(true, "acpi_pm", sources[i], true);
		assert_independent(true, "ntp", sources[i], true);
	}
	assert_independent(false, "acpi_pm", "acpi_pm", false);
}

TEST(what_the_kernel_made_its_clock_from_is_not)
{
	static const char *const methods[] = { "perf_time_mult", "kernel_log", "hypervisor_leaf" };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(methods); i++) {
		assert_independent(false, methods[i], "tsc", false);
		assert_independent(false, methods[i], "kvm-clock", false);
		assert_independent(false, methods[i], "", false);
		assert_independent(true, methods[i], "hpet", false);
	}
}

TEST(cpuid_is_independent_of_a_kernel_that_measured)
{
	assert_independent(true, "cpuid_15h", "tsc", false);
	assert_independent(false, "cpuid_15h", "tsc", true);
	assert_independent(false, "cpuid_15h", "kvm-clock", false);
}

TEST(a_pm_timer_that_goes_round_is_one_that_goes_on)
{
	/* 200 ms at 2 GHz. */
	const double straight = klat_frequency_of_pm(400000000, 1000, 1000 + 715909);

	assert_true(fabs(straight - 2000000) < 2);
	assert_true(klat_frequency_of_pm(400000000, 0xfffff0, 0xfffff0 + 715909 - 0x1000000) ==
		    straight);
	assert_true(klat_frequency_of_pm(400000000, 0xffffffff, 0xffffffff) == 0);
}

TEST(steps_of_boards_are_coarse_and_those_of_fast_cpus_are_not)
{
	assert_true(klat_frequency_is_coarse(1, 1000));
	assert_true(klat_frequency_is_coarse(1, 62500));
	assert_true(klat_frequency_is_coarse(40, 1000000)); /* 25 MHz, scaled to 1 GHz */
	assert_false(klat_frequency_is_coarse(1, 1000000));
	assert_false(klat_frequency_is_coarse(36, 3593000));
}

TEST(ntp_tells_by_how_much_the_kernel_is_off)
{
	struct timex ntp = { .freq = 100 << 16, .tick = 10000 };

	/* The clock had to be sped up by 100 ppm: the counter is slower than the kernel thinks. */
	assert_true(fabs(klat_frequency_of_ntp(1000100, &ntp) - 1000000) < 1e-3);
	ntp.freq = 0;
	ntp.tick = 9999;
	assert_true(fabs(klat_frequency_of_ntp(999900, &ntp) - 1000000) < 1e-3);
	ntp.tick = 0;
	assert_true(klat_frequency_of_ntp(1000000, &ntp) == 0);
	ntp.tick = 10000;
	ntp.status = STA_UNSYNC;
	assert_true(klat_frequency_of_ntp(1000000, &ntp) == 0);
}

TEST(a_second_method_comes_with_its_name_and_difference)
{
	struct klat_counter tsc;

	klat_counter_calibrate(&tsc);
	if (!tsc.second_khz) {
		assert_string_equal(tsc.second_method, "");
		assert_false(tsc.independent);
		return;
	}
	assert_true(strlen(tsc.second_method) > 0);
	assert_true(fabs(tsc.difference_ppm - 1e6 * (tsc.khz / tsc.second_khz - 1)) < 1e-6);
	/* A wrong one would still be near. */
	assert_true(fabs(tsc.difference_ppm) < 10000);
}

static bool counters_differ;

static void migrate(void)
{
	klat_cpu_set allowed;
	int cpu = sched_getcpu();

	klat_cpus_allowed(&allowed);
	do
		cpu = (cpu + 1) % KLAT_MAX_CPU;
	while (!klat_cpu_in(&allowed, cpu));
	klat_cpu_pin(cpu);
	klat_cpus_allow(&allowed);
}

/* A counter of 2 GHz on each CPU, with an offset of 1 ms between neighbours. Before each reading,
 * the scheduler moves the thread to the next CPU that is allowed. */
bool __real_klat_arch_clock_step(int64_t (*read_clock)(void), int64_t *ns, uint64_t *ticks);
bool __wrap_klat_arch_clock_step(int64_t (*read_clock)(void), int64_t *ns, uint64_t *ticks)
{
	if (!counters_differ)
		return __real_klat_arch_clock_step(read_clock, ns, ticks);
	migrate();
	*ns = read_clock();
	*ticks = 2 * klat_clock_ns(CLOCK_MONOTONIC_RAW) + 2000000 * sched_getcpu();
	return true;
}

TEST(an_offset_between_two_counters_is_not_in_the_frequency)
{
	klat_cpu_set before, after;
	struct klat_counter tsc;

	klat_cpus_allowed(&before);
	if (klat_cpu_weight(&before) < 2)
		skip();
	counters_differ = true;
	klat_counter_calibrate(&tsc);
	counters_differ = false;
	klat_cpus_allowed(&after);
	assert_memory_equal(&after, &before, sizeof(after));
	assert_true(fabs(tsc.khz / 2000000 - 1) < 0.001);
}

TEST(ns_become_ticks_before_the_frequency_is_known)
{
	struct klat_counter counter;

	klat_counter_calibrate(&counter);
	run->counter_khz = 0;
	assert_true(fabs(klat_ns_to_ticks(run, 1000000000) / counter.khz / 1000 - 1) < 0.05);
	run->counter_khz = 2500000;
	assert_int_equal(klat_ns_to_ticks(run, 1000), 2500);
}
