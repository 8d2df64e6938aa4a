/* SPDX-License-Identifier: MIT */
/*
 * Sleeps between iterations. The kernel's count of voluntary switches before and after each sleep
 * says how many of a worker's switches do not belong to the event.
 */
#include "machine/machine.h"

#include <errno.h>
#include <unistd.h>

#define TIMEOUT_NS (2 * KLAT_NS_PER_S)
#define EMULATED_TIMEOUT_NS (120 * KLAT_NS_PER_S)

static int64_t coarse_ns(void)
{
	return klat_clock_ns(CLOCK_MONOTONIC_COARSE);
}

void klat_rest_begins(struct klat_worker *worker)
{
	worker->before_rest = klat_thread_usage().ru_nvcsw;
}

void klat_rest_ends(struct klat_worker *worker)
{
	worker->rests += klat_thread_usage().ru_nvcsw - worker->before_rest;
	__atomic_store_n(&worker->before_rest, -1, __ATOMIC_RELEASE);
}

int klat_sleep_until(struct klat_worker *worker, int64_t ns)
{
	const struct timespec until = klat_from_ns(ns);
	int err;

	klat_rest_begins(worker);
	err = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	klat_rest_ends(worker);
	return -err;
}

void klat_sleep(struct klat_worker *worker, int64_t ns)
{
	const int64_t from = klat_now_ns(), until = from + ns;
	int err;

	do
		err = klat_sleep_until(worker, until);
	while (err == -EINTR);
	worker->slept_ns += klat_now_ns() - from;
	if (!err)
		return;
	klat_error(worker->run, -err, "clock_nanosleep() failed in the %s: %m", worker->noun);
	_exit(1);
}

bool klat_rest(struct klat_worker *worker)
{
	int64_t now, spun, rest = KLAT_REST_NS;

	/* worker->priority_obtained is read after the body. */
	if (!worker->priority)
		return false;
	now = coarse_ns();
	if (!worker->spin_began)
		worker->spin_began = now;
	spun = now - worker->spin_began;
	if (spun < KLAT_SPIN_NS)
		return false;
	if (klat_emulated())
		rest = (spun < KLAT_NS_PER_S ? spun : KLAT_NS_PER_S) * KLAT_REST_NS / KLAT_SPIN_NS;
	klat_sleep(worker, rest);
	worker->spin_began = coarse_ns();
	return true;
}

/* Without PAUSE: in a guest, a series of PAUSEs makes the hypervisor take the CPU (pause-loop
 * exiting). */
int klat_spin_until(struct klat_worker *worker, const uint32_t *word, uint32_t value)
{
	int64_t begun = 0;

	for (uint32_t turns = 1; (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) < 0;
	     turns++) {
		if (turns & 0xffff)
			continue;
		if (worker)
			klat_rest(worker);
		else if (begun && coarse_ns() - begun > KLAT_SPIN_NS)
			klat_nap(KLAT_REST_NS);
		if (!begun)
			begun = coarse_ns();
		else if (coarse_ns() - begun > (klat_emulated() ? EMULATED_TIMEOUT_NS : TIMEOUT_NS))
			return -ETIMEDOUT;
	}
	return 0;
}

int klat_meet(struct klat_worker *worker, uint32_t *arrivals, int parties, uint32_t number)
{
	__atomic_fetch_add(arrivals, 1, __ATOMIC_ACQ_REL);
	return klat_spin_until(worker, arrivals, parties * (number + 1));
}
