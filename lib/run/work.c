/* SPDX-License-Identifier: MIT */
/* A fixed amount of work, and hogs: see work.h. */
#include "work.h"

#include "run/run.h"

#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The least CPU time of a hog that ran. */
#define LEAST_NS 1000000

/* An interruption only makes a try longer, so the fastest counts. Tries end when 20 in a row are
 * not faster. */
uint64_t klat_burn_rounds(struct klat_worker *worker, int64_t ns)
{
	const uint64_t rounds = 1 << 14;
	uint64_t quickest = UINT64_MAX;
	volatile uint64_t sink;

	for (int slower = 0; slower < 20; slower++) {
		const uint64_t begin = klat_stamp_begin();
		uint64_t ticks;

		sink = klat_burn(rounds, slower);
		ticks = klat_stamp_end(worker) - begin;
		if (ticks < quickest) {
			quickest = ticks;
			slower = 0;
		}
	}
	(void)sink;
	return klat_ns_to_ticks(worker->run, ns) * rounds / quickest;
}

/* Each round faults once for each page. Unmapped pages leave nothing to wait for. */
static void fault(struct klat_hog *hog)
{
	const size_t size = 64 * sysconf(_SC_PAGESIZE), page = sysconf(_SC_PAGESIZE);

	for (;;) {
		volatile char *pages = mmap(NULL, size, PROT_READ | PROT_WRITE,
					    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (pages == MAP_FAILED) {
			hog->refused = errno;
			return;
		}
		for (size_t at = 0; at < size; at += page)
			pages[at] = 1;
		munmap((void *)pages, size);
	}
}

static void *hog_main(void *argument)
{
	const struct sched_param param = { 0 };
	struct klat_hog *hog = argument;

	/* klat explain names the task that ran. */
	prctl(PR_SET_NAME, "hog");
	if ((hog->policy != SCHED_OTHER && sched_setscheduler(0, hog->policy, &param)) ||
	    (hog->nice && setpriority(PRIO_PROCESS, gettid(), hog->nice))) {
		hog->refused = errno;
		return NULL;
	}
	switch (hog->kind) {
	case KLAT_HOG_USER:
		for (;;)
			;
	case KLAT_HOG_SYSCALL:
		for (;;)
			syscall(SYS_getppid);
	case KLAT_HOG_FAULT:
		fault(hog);
		break;
	case KLAT_HOG_ASLEEP:
		for (;;)
			pause();
	}
	return NULL;
}

int klat_hog_start(struct klat_run *run, struct klat_hog *hog, int cpu)
{
	const int err = klat_thread_start(&hog->thread, cpu, hog_main, hog);

	hog->started = !err;
	return err ? klat_cannot_start(run, -err, "a hog") : 0;
}

/* -errno if its clock cannot be read. */
static int64_t cpu_ns(const struct klat_hog *hog)
{
	struct timespec time;
	clockid_t clock;
	int err;

	if (!hog->started)
		return 0;
	err = pthread_getcpuclockid(hog->thread, &clock);
	if (err)
		return -err;
	return clock_gettime(clock, &time) ? -errno : klat_to_ns(time);
}

int64_t klat_hogs_ns(const struct klat_hog *hogs, int count)
{
	int64_t sum = 0;

	for (int i = 0; i < count; i++)
		sum += MAX(cpu_ns(&hogs[i]), 0);
	return sum;
}

int klat_hogs_await(struct klat_worker *worker, const struct klat_hog *hogs, int count)
{
	const int64_t begin = klat_now_ns();

	for (int i = 0; i < count; i++) {
		int64_t ns = LEAST_NS;

		if (hogs[i].kind != KLAT_HOG_ASLEEP)
			ns = cpu_ns(&hogs[i]);
		for (; ns < LEAST_NS && !hogs[i].refused; ns = cpu_ns(&hogs[i])) {
			if (ns < 0)
				return ns;
			if (klat_now_ns() - begin > 10 * KLAT_NS_PER_S)
				return -ETIMEDOUT;
			klat_sleep(worker, LEAST_NS);
		}
	}
	return 0;
}

void klat_hogs_read(struct klat_hog *hogs, int count)
{
	for (int i = 0; i < count; i++)
		hogs[i].cpu_ns = MAX(cpu_ns(&hogs[i]), 0);
}

void klat_hogs_require(struct klat_run *run, const struct klat_hog *hogs, int count)
{
	int64_t sum_ns = 0, least_ns = INT64_MAX, refused = 0;

	for (int i = 0; i < count; i++) {
		if (!hogs[i].started)
			continue;
		sum_ns += hogs[i].cpu_ns;
		least_ns = MIN(least_ns, hogs[i].cpu_ns);
		refused += hogs[i].refused != 0;
	}
	klat_require(run, { "hog_ms", .got = sum_ns / 1000000, .unless = least_ns == INT64_MAX },
		     { NULL, refused, KLAT_NEVER,
		       .reason = "a hog did not get its priority, or memory" },
		     { NULL, least_ns, KLAT_AT_LEAST, LEAST_NS,
		       .reason = "a hog ran for only {got} ns" });
}

void klat_hogs_require_remainder(struct klat_run *run, const struct klat_worker *worker, int64_t ns)
{
	/* A real-time worker preempts other tasks as it preempts the hogs. */
	const bool ordinary = !klat_is_real_time(run);
	int64_t left_ns = worker->account.elapsed_ns;

	klat_for_each_worker(other, run)
		if (other->cpu == worker->cpu)
			left_ns -= other->account.cpu_ns;
	/* The kernel counts parts of a switch as the time of neither task. Workers of one CPU that
	 * wake each other may leave nothing else. */
	left_ns = MAX(0, left_ns - 1000 * klat_observed(run));
	klat_require(run,
		     { "hog_us", ns / 1000, ordinary ? KLAT_AT_LEAST : KLAT_COUNTED, left_ns / 2000,
		       .reason =
			       "the hogs had {got} us of CPU time, less than {wanted} us (half of "
			       "what the workers left): the CPU was idle, or other tasks ran" },
		     { NULL, ns / 1000, KLAT_AT_LEAST, left_ns / 10 * 9 / 1000,
		       "other tasks took more than a tenth of the CPU time that the workers left",
		       .disturbs = true, .unless = !ordinary || run->library->common.under_load });
}
