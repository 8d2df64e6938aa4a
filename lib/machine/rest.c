/* SPDX-License-Identifier: MIT */
/*
 * Sleeps between iterations. The kernel's count of voluntary switches before and after each sleep
 * says how many of a worker's switches do not belong to the event.
 */
#include "internal.h"

#include <errno.h>
#include <sys/resource.h>
#include <time.h>

#define SPIN_NS 40000000
#define REST_NS 6000000
#define NS_PER_S 1000000000
#define TIMEOUT_NS (INT64_C(2) * NS_PER_S)
#define EMULATED_TIMEOUT_NS (INT64_C(120) * NS_PER_S)

static int64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Precise enough to decide when to rest, and cheap. */
static int64_t coarse_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC_COARSE);
}

static int64_t voluntary_switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

void klat_rest_begins(struct klat_worker *worker)
{
	worker->rests -= voluntary_switches();
}

void klat_rest_ends(struct klat_worker *worker)
{
	worker->rests += voluntary_switches();
}

int klat_sleep_until(struct klat_worker *worker, int64_t ns)
{
	const struct timespec until = { ns / NS_PER_S, ns % NS_PER_S };
	int err;

	klat_rest_begins(worker);
	err = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	klat_rest_ends(worker);
	return -err;
}

void klat_sleep(struct klat_worker *worker, int64_t ns)
{
	int64_t until = clock_ns(CLOCK_MONOTONIC) + ns;

	while (klat_sleep_until(worker, until) == -EINTR)
		;
}

bool klat_rest(struct klat_worker *worker)
{
	int64_t now, spun, rest = REST_NS;

	/* Its policy and priority are read back only after its body has ended. */
	if (!worker->priority)
		return false;
	now = coarse_ns();
	if (!worker->spin_began)
		worker->spin_began = now;
	spun = now - worker->spin_began;
	if (spun < SPIN_NS)
		return false;
	if (klat_emulated())
		rest = (spun < NS_PER_S ? spun : NS_PER_S) * REST_NS / SPIN_NS;
	klat_sleep(worker, rest);
	worker->spin_began = coarse_ns();
	return true;
}

/* No PAUSE: in a guest, a series of them makes the hypervisor take the CPU (pause-loop exiting). */
int klat_spin_until(struct klat_worker *worker, const uint32_t *word, uint32_t value)
{
	const struct timespec pause = { .tv_nsec = REST_NS };
	int64_t begun = 0;

	for (uint32_t turns = 1; (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) < 0;
	     turns++) {
		if (turns & 0xffff)
			continue;
		if (worker)
			klat_rest(worker);
		else if (begun && coarse_ns() - begun > SPIN_NS)
			clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		if (!begun)
			begun = coarse_ns();
		else if (coarse_ns() - begun > (klat_emulated() ? EMULATED_TIMEOUT_NS : TIMEOUT_NS))
			return -ETIMEDOUT;
	}
	return 0;
}
