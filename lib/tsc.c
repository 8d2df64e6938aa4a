/* SPDX-License-Identifier: MIT */
/* The time-stamp counter: invariance, frequency, floor, granularity, offsets between CPUs. */
#include "internal.h"

#include <cpuid.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HYPERVISOR_LEAF 0x40000000u

static bool hypervisor_present(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & 1u << 31);
}

bool klat_tsc_usable(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000001, &a, &b, &c, &d) && (d & 1u << 27);
}

/* CPUID 80000007h EDX bit 8 is both constant_tsc and nonstop_tsc. */
bool klat_tsc_invariant(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
}

static int64_t now_raw(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* A clock reading and the counter at its middle, from the tightest of several brackets; returns the
 * bracket's width in ticks. */
static uint64_t read_pair(int64_t *ns, uint64_t *tsc)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 64; i++) {
		uint64_t before = klat_tsc_begin();
		int64_t clock = now_raw();
		uint64_t after = klat_tsc_begin();

		if (after - before < best) {
			best = after - before;
			*ns = clock;
			*tsc = before + best / 2;
		}
	}
	return best;
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

int64_t klat_tsc_quantum(void)
{
	uint64_t divisor = 0;

	for (int i = 0; i < 1000; i++) {
		uint64_t a = klat_tsc_begin(), b = klat_tsc_begin() - a;

		while (b) {
			uint64_t rest = divisor % b;

			divisor = b;
			b = rest;
		}
	}
	return divisor ? divisor : 1;
}

void klat_tsc_calibrate(struct klat_tsc *tsc)
{
	static const struct {
		const char *name;
		double (*khz)(void);
	} sources[] = {
		{ "cpuid_15h", khz_of_cpuid },
		{ "hypervisor_leaf", khz_of_hypervisor },
		{ "perf_time_mult", khz_of_perf },
		{ "kernel_log", khz_of_kernel_log },
	};
	struct timespec duration = { .tv_nsec = 200000000 };
	int64_t ns_first, ns_last;
	uint64_t tsc_first, tsc_last, width;

	memset(tsc, 0, sizeof(*tsc));
	tsc->invariant = klat_tsc_invariant();
	tsc->quantum = klat_tsc_quantum();
	width = read_pair(&ns_first, &tsc_first);
	clock_nanosleep(CLOCK_MONOTONIC, 0, &duration, NULL);
	width += read_pair(&ns_last, &tsc_last);
	tsc->khz = 1e6 * (tsc_last - tsc_first) / (ns_last - ns_first);
	/* Each reading lies anywhere in its bracket. */
	tsc->uncertainty_ppm = 1e6 * (width / 2.0) / (tsc_last - tsc_first);
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(sources) && !tsc->second_khz; i++) {
		tsc->second_khz = sources[i].khz();
		if (tsc->second_khz)
			snprintf(tsc->second_method, sizeof(tsc->second_method), "%s",
				 sources[i].name);
	}
	if (tsc->second_khz)
		tsc->difference_ppm = 1e6 * (tsc->khz / tsc->second_khz - 1);
}

uint64_t klat_tsc_floor(struct klat_worker *worker)
{
	uint64_t floor = UINT64_MAX;

	for (int i = 0; i < 1000; i++) {
		uint64_t begin = klat_tsc_begin(), bracket = klat_tsc_end(worker) - begin;

		if (bracket < floor)
			floor = bracket;
	}
	return floor;
}

uint64_t klat_spin_excess(void)
{
	uint64_t floor = UINT64_MAX, excess = 0;
	const int lengths = 64;

	for (int i = 0; i < 1000; i++) {
		uint64_t begin = klat_tsc_begin(), bracket = klat_tsc_begin() - begin;

		floor = bracket < floor ? bracket : floor;
	}
	/* A spin ends at one of its own readings, anywhere within a turn: the mean over lengths
	 * that differ by a tick. */
	for (int length = 0; length < lengths; length++) {
		uint64_t shortest = UINT64_MAX;

		for (int i = 0; i < 20; i++) {
			uint64_t begin = klat_tsc_begin(), bracket;

			klat_spin(1000 + length);
			bracket = klat_tsc_begin() - begin;
			shortest = bracket < shortest ? bracket : shortest;
		}
		shortest -= 1000 + length;
		excess += shortest > floor ? shortest - floor : 0;
	}
	return excess / lengths;
}

/*
 * Ping-pong over one cache line. The pinger's stamps p1 and p2 enclose the ponger's stamp q in real
 * time, so that the offset o = (ponger's counter - pinger's) lies in [q - p2, q - p1]; every round
 * narrows the interval.
 */
struct ping_pong {
	pthread_barrier_t both_there;
	uint32_t turn KLAT_ALIGNED;
	uint64_t stamp;
	int cpu;
	int result;
	int rounds;
} KLAT_ALIGNED;

static void *pong(void *argument)
{
	struct ping_pong *shared = argument;

	shared->result = klat_cpu_pin(shared->cpu);
	pthread_barrier_wait(&shared->both_there);
	for (int round = 0; round < shared->rounds && !shared->result; round++) {
		shared->result = klat_spin_until(NULL, &shared->turn, 2 * round + 1);
		if (shared->result)
			break;
		shared->stamp = klat_tsc_begin();
		__atomic_store_n(&shared->turn, 2 * round + 2, __ATOMIC_RELEASE);
	}
	return NULL;
}

struct ping {
	struct ping_pong *shared;
	int cpu, result;
	int64_t low, high;
};

static void *ping(void *argument)
{
	struct ping *own = argument;
	struct ping_pong *shared = own->shared;

	own->result = klat_cpu_pin(own->cpu);
	pthread_barrier_wait(&shared->both_there);
	for (int round = 0; round < shared->rounds && !own->result; round++) {
		uint64_t before = klat_tsc_begin(), after;

		__atomic_store_n(&shared->turn, 2 * round + 1, __ATOMIC_RELEASE);
		own->result = klat_spin_until(NULL, &shared->turn, 2 * round + 2);
		if (own->result)
			break;
		after = klat_tsc_begin();
		if ((int64_t)(shared->stamp - after) > own->low)
			own->low = shared->stamp - after;
		if ((int64_t)(shared->stamp - before) < own->high)
			own->high = shared->stamp - before;
	}
	return NULL;
}

int klat_tsc_offset_bound(int cpu_a, int cpu_b, const struct klat_policy *policy, uint64_t *bound)
{
	const struct sched_param param = { .sched_priority = policy->priority };
	struct ping_pong shared = { .cpu = cpu_b, .rounds = 200 };
	struct ping own = { .shared = &shared, .cpu = cpu_a, .low = INT64_MIN, .high = INT64_MAX };
	pthread_t ping_thread, pong_thread;
	pthread_attr_t attributes;
	int err;

	*bound = 0;
	if (cpu_a == cpu_b)
		return 0;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, KLAT_STACK_SIZE);
	/* Under load, threads that share the CPUs' time might never run at once, and each round
	 * would hold a context switch. */
	pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attributes, policy->policy);
	pthread_attr_setschedparam(&attributes, &param);
	/* One that spins for the other on the only CPU of the caller's mask would keep it from ever
	 * being started. */
	pthread_barrier_init(&shared.both_there, NULL, 2);
	err = pthread_create(&pong_thread, &attributes, pong, &shared);
	if (err)
		goto out;
	err = pthread_create(&ping_thread, &attributes, ping, &own);
	if (err)
		pthread_barrier_wait(&shared.both_there);
	else
		pthread_join(ping_thread, NULL);
	pthread_join(pong_thread, NULL);
out:
	pthread_barrier_destroy(&shared.both_there);
	pthread_attr_destroy(&attributes);
	if (err || own.result || shared.result)
		return err ? -err : own.result ? own.result : shared.result;
	*bound = llabs(own.low) > llabs(own.high) ? llabs(own.low) : llabs(own.high);
	return 0;
}
