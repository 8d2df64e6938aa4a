/* SPDX-License-Identifier: MIT */
/*
 * A soak: one run of hours in bounded memory. The workers fill their sample buffers in laps: after
 * the last element comes the first one again, without a stop and without a system call. The
 * supervisor runs on a CPU without a worker. Ten times a second it adds the new samples to the
 * histograms. At the end of each segment it judges and records the segment. At the end of the soak
 * it kills the measured process, so the workers need not check whether to stop.
 */
#include "run/run.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* The programs with .soaks. */
#define SOAKING                                                                                    \
	"timer, pipes, cv, network, tlbflush, fault, inherit, messages, noise, signal, spawn, "    \
	"transport and wakeup"

enum {
	POLL_NS = 100000000,
	LAP_BYTES = 4 << 20,       /* of all sample buffers */
	SETTLING_S = 5,            /* after a suspension */
	HISTOGRAM_BYTES = 8 << 20, /* of all histograms */
};

/* The first worker of a pair that asks for a lap decides for the whole pair. `decided` is twice the
 * number of laps, plus one if no further lap follows. */
static bool has_lap_of_tail(struct klat_worker *worker)
{
	struct klat_library *library = worker->run->library;
	uint32_t *decided = &worker->run->workers->decided,
		 seen = __atomic_load_n(decided, __ATOMIC_ACQUIRE), next;

	if (!worker->laps)
		__atomic_fetch_add(&library->finished, 1, __ATOMIC_ACQ_REL);
	while (seen == 2 * worker->laps) {
		next = __atomic_load_n(&library->finished, __ATOMIC_ACQUIRE) < library->starting
			       ? seen + 2
			       : seen + 1;
		if (__atomic_compare_exchange_n(decided, &seen, next, false, __ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			seen = next;
	}
	if (seen / 2 == worker->laps)
		return false;
	worker->laps++;
	return true;
}

bool klat_begin_lap(struct klat_worker *worker)
{
	if (worker->run->pairs > 1)
		return has_lap_of_tail(worker);
	if (!worker->run->library->soak.lap)
		return false;
	/* In this order: a reader between the two stores computes too few iterations, never too
	 * many. */
	__atomic_store_n(&worker->iteration, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&worker->laps, worker->laps + 1, __ATOMIC_RELEASE);
	return true;
}

static int64_t series_count(const struct klat_run *run)
{
	int64_t count = 0;

	klat_for_each_metric(m, run)
		count += run->library->metrics[m].series;
	return count;
}

int klat_soak_prepare(struct klat_run *run)
{
	struct klat_soak *soak = &run->library->soak;

	if (!run->library->common.soak_s)
		return 0;
	if (!run->benchmark->soaks)
		return klat_usage(run, "--soak: %s cannot soak; these can: " SOAKING,
				  run->benchmark->name);
	if (run->library->offset_wanted)
		return klat_usage(run,
				  "--soak: %s cannot soak with these options: they compare the "
				  "counters of two CPUs, whose offset can change in hours",
				  run->benchmark->name);
	if (!klat_timed())
		return klat_usage(run, "--soak needs a mode with time; this is mode %s",
				  klat_mode());
	soak->lap = LAP_BYTES / sizeof(uint64_t) / (series_count(run) + 1);
	soak->lap -= soak->lap % KLAT_TURNS;
	run->iterations = run->end = soak->lap;
	return 0;
}

int klat_soak_map(struct klat_run *run)
{
	struct klat_soak *soak = &run->library->soak;

	if (!soak->lap)
		return 0;
	soak->ended = mmap(NULL, soak->lap * sizeof(uint64_t), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (soak->ended == MAP_FAILED)
		return klat_error(run, errno, "cannot map a buffer for end stamps: %m");
	memset(soak->ended, 0, soak->lap * sizeof(uint64_t));
	soak->latency_us = klat_latency_request(KLAT_LATENCY_UNLIMITED);
	return 0;
}

void klat_soak_watch(struct klat_run *run)
{
	struct klat_soak *soak = &run->library->soak;

	klat_for_each_metric(m, run) {
		if (!soak->lap || soak->stamping)
			break;
		soak->stamping = klat_worker_of(run, m, 0);
		if (soak->stamping && !soak->stamping->watched)
			soak->stamping->watched = klat_series(run, m, 0);
	}
}

void klat_soak_check(struct klat_worker *worker, int64_t i)
{
	const struct klat_soak *soak = &worker->run->library->soak;
	const int64_t at = (i ? i : soak->lap) - 1;
	uint64_t limit;

	if (i < 0)
		return;
	soak->ended[at] = worker->ended;
	limit = __atomic_load_n(&soak->stop_limit, __ATOMIC_RELAXED);
	if (!limit || worker->watched[at] <= limit)
		return;
	klat_rest_begins(worker);
	klat_slow_keep_last(worker, worker->laps * soak->lap + i - 1, worker->watched[at]);
	/* Later samples would contain the copy of the trace. The supervisor ends the process. */
	__atomic_store_n(&worker->iteration, i, __ATOMIC_RELEASE);
	for (;;)
		klat_nap(KLAT_NS_PER_S);
}

/* What the supervisor knows of the soak. */
struct follower {
	struct klat_run *run;
	struct klat_soak *soak;
	uint64_t limit;  /* in ticks */
	int64_t drained; /* iterations whose samples are in a histogram */
	int64_t segment; /* number of the current one, from 1 */
	struct klat_reading *before, *after;
	int64_t began_ns, shown_s;
	int64_t first;                  /* iteration of the segment */
	struct klat_clocks clocks;      /* of the last poll */
	int64_t sleeps;                 /* of the stop detector, at the last poll */
	bool waits;                     /* one poll, after a stop */
	int64_t resumed_ns, resumed_at; /* time and iterations when a suspension was seen; 0, -1 */
};

static int make_follower(struct follower *follower, struct klat_run *run)
{
	struct klat_soak *soak = &run->library->soak;
	const int64_t capacity =
		HISTOGRAM_BYTES / sizeof(struct klat_pair) / run->library->metrics_used;

	*follower = (struct follower){ .run = run, .soak = soak, .segment = 1, .resumed_at = -1 };
	follower->limit = run->library->common.limit_ns
				  ? (uint64_t)klat_ns_to_ticks(run, run->library->common.limit_ns)
				  : UINT64_MAX;
	klat_clocks_take(&follower->clocks);
	follower->before = klat_reading_make(run);
	follower->after = klat_reading_make(run);
	soak->histograms = calloc(run->benchmark->metric_count, sizeof(*soak->histograms));
	if (!follower->before || !follower->after || !soak->histograms)
		return -ENOMEM;
	klat_for_each_metric(m, run)
		if (klat_histogram_make(&soak->histograms[m], capacity))
			return -ENOMEM;
	return 0;
}

static bool is_full(const struct follower *follower)
{
	klat_for_each_metric(m, follower->run)
		if (klat_histogram_is_full(&follower->soak->histograms[m]))
			return true;
	return false;
}

int64_t klat_soak_time_ns(const struct klat_run *run, const struct klat_kept *sample)
{
	const struct klat_soak *soak = &run->library->soak;
	const int64_t since = sample->ended - soak->began;

	return sample->ended ? soak->began_ns + (int64_t)klat_ticks_to_ns(run, since) : 0;
}

/* Add iteration `at` to the histograms. */
static void take(struct follower *follower, int64_t at)
{
	const struct klat_run *run = follower->run;
	const int64_t slot = at % follower->soak->lap;

	klat_for_each_metric(m, run)
		for (int64_t s = 0; s < run->library->metrics[m].series; s++) {
			const struct klat_kept sample = { .index = at,
							  .series = s,
							  .value = klat_series(run, m, s)[slot],
							  .ended = follower->soak->ended[slot],
							  .involuntary = -1 };

			struct klat_histogram *histogram = &follower->soak->histograms[m];

			klat_histogram_add(histogram, &sample, follower->limit);
			if (histogram->totals.worst.index == at)
				histogram->totals.worst_ns =
					klat_soak_time_ns(run, &histogram->totals.worst);
		}
}

/* Whether a sample ends the soak (--stop-above). */
static bool is_stopped(const struct follower *follower)
{
	int64_t above = 0;

	klat_for_each_metric(m, follower->run)
		above += follower->soak->histograms[m].totals.above;
	return above && follower->run->library->common.stop_above;
}

/*
 * Add the samples of all iterations before `end` to the histograms, unless a histogram becomes
 * full. Workers that are a lap ahead have overwritten some of these samples.
 */
static void drain(struct follower *follower, int64_t end)
{
	const int64_t begin = follower->drained;
	int64_t ahead;

	while (follower->drained < end && !is_full(follower) && !is_stopped(follower))
		take(follower, follower->drained++);
	ahead = klat_soak_farthest(follower->run) - begin;
	if (ahead >= follower->soak->lap)
		follower->soak->overwritten += ahead - follower->soak->lap + 1;
}

/* Store the state of the evidence in the new samples that are kept. `is_read`: follower->after has
 * this state already. */
static void note_state(struct follower *follower, bool is_read)
{
	const struct klat_run *run = follower->run;

	klat_for_each_metric(m, run) {
		struct klat_histogram *histogram = &follower->soak->histograms[m];

		for (int64_t k = 0; k < histogram->kept_count; k++) {
			if (histogram->kept[k].involuntary >= 0)
				continue;
			if (!is_read)
				klat_reading_take(follower->after, run);
			is_read = true;
			klat_reading_state(follower->before, follower->after, run,
					   &histogram->kept[k]);
		}
	}
}

static void begin_segment(struct follower *follower)
{
	struct klat_soak *soak = follower->soak;

	soak->began_ns = follower->before->snapshot.clocks.clock_ns;
	soak->began = follower->before->snapshot.clocks.ticks;
	follower->first = follower->drained;
	soak->overwritten = 0;
	klat_for_each_metric(m, follower->run)
		klat_histogram_clear(&soak->histograms[m]);
}

/* The kernel moves the threads of a CPU that goes offline, and does not move them back. All later
 * segments would be invalid. */
static int check_places(const struct follower *follower)
{
	struct klat_run *run = follower->run;
	const struct klat_worker *unpinned = klat_reading_unpinned(follower->before, run);
	klat_cpu_set online;

	if (!unpinned)
		return 0;
	if (!klat_cpus_online(&online) && !klat_cpu_in(&online, unpinned->cpu))
		return klat_error(
			run, ENODEV,
			"CPU %d went offline, and the kernel moved the %s: the soak ended "
			"after segment %lld",
			unpinned->cpu, unpinned->noun, (long long)follower->soak->segments);
	return klat_error(run, ENODEV,
			  "the %s is no longer held to CPU %d: the CPU was offline for a time, "
			  "another program set the affinity, or the kernel moved the thread; the "
			  "soak ended after segment %lld",
			  unpinned->noun, unpinned->cpu, (long long)follower->soak->segments);
}

/* `*left_out`: a histogram was full before the last samples. The next segment begins with them. */
static int end_segment(struct follower *follower, bool *left_out)
{
	struct klat_run *run = follower->run;
	struct klat_reading *now = follower->after;
	int status;

	klat_reading_take(now, run);
	klat_for_each_worker(worker, run)
		worker->strayed = 0;
	drain(follower, now->iterations);
	note_state(follower, true);
	*left_out = is_full(follower);
	if (now->sleeps != follower->before->sleeps)
		klat_clocks_wait(&follower->before->snapshot.clocks, &now->snapshot.clocks);
	status = klat_segment_end(run, follower->before, now, follower->segment);
	if (status >= 0) {
		follower->soak->segments = follower->segment++;
		follower->soak->elapsed_ns = klat_now_ns() - follower->began_ns;
	}
	klat_for_each_metric(m, run)
		if (status != KLAT_OK && status != KLAT_DISTURBED)
			klat_histogram_forget(&follower->soak->histograms[m], follower->first);
	follower->after = follower->before;
	follower->before = now;
	begin_segment(follower);
	return status < 0 ? status : check_places(follower);
}

/* Begin the soak when all workers have completed their warm-up. False before. */
static bool begin(struct follower *follower)
{
	if (!follower->run->worker_count || klat_soak_progress(follower->run) < 1)
		return false;
	klat_reading_take(follower->before, follower->run);
	follower->drained = follower->before->iterations;
	begin_segment(follower);
	if (follower->run->library->common.stop_above)
		__atomic_store_n(&follower->soak->stop_limit, follower->limit, __ATOMIC_RELAXED);
	return true;
}

/* The counter cannot tell a sample below the floor from one above it. */
static int check_limit(const struct follower *follower)
{
	struct klat_run *run = follower->run;

	klat_for_each_worker(worker, run)
		if (follower->limit <= worker->floor)
			return klat_error(run, EINVAL,
					  "--limit: %lld ns must be above the floor, %.3g ns",
					  (long long)run->library->common.limit_ns,
					  klat_ticks_to_ns(run, worker->floor));
	return 0;
}

static void show(struct follower *follower, int64_t now_ns)
{
	const int64_t seconds = (now_ns - follower->began_ns) / KLAT_NS_PER_S;

	if (seconds != follower->shown_s)
		follower->soak->show(follower->run, seconds);
	follower->shown_s = seconds;
}

/* False as long as workers can be late from a suspension: it makes their segment invalid. False in
 * one poll after a stop, because the kernel counts a failed suspension a little later. Stops and
 * suspensions that go on (cpulimit, autosleep) do not delay the segment further. */
static bool has_settled(struct follower *follower, int64_t now_ns, int64_t at)
{
	const struct klat_clocks last = follower->clocks;
	const int64_t sleeps = klat_stop_detector_sleeps(follower->run);
	const bool settles = now_ns - follower->resumed_ns < SETTLING_S * KLAT_NS_PER_S;

	follower->waits = sleeps != follower->sleeps && !follower->waits;
	follower->sleeps = sleeps;
	klat_clocks_take(&follower->clocks);
	if (!settles && klat_was_suspended(&last, &follower->clocks)) {
		follower->resumed_ns = now_ns;
		follower->resumed_at = at; /* so this poll returns false */
	}
	return !follower->waits && !settles && at > follower->resumed_at;
}

static int follow(struct follower *follower, int *status, struct rusage *usage)
{
	const struct timespec poll = { .tv_nsec = POLL_NS };
	const struct klat_common *common = &follower->run->library->common;
	const int64_t segment_ns = common->segment_s * KLAT_NS_PER_S;
	int64_t idle_polls = 0, seen = -1, end_ns = 0, segment_end_ns = 0;
	bool ends = false, settled;

	for (;;) {
		int signal = klat_signals_wait(&poll);
		const bool asked = signal > 0 && signal != SIGCHLD;
		int64_t now_ns = klat_now_ns(), at, visible = seen;

		if (signal < 0)
			return klat_error(follower->run, -signal,
					  "cannot wait for the measured process: %m");
		if (wait4(follower->soak->pid, status, WNOHANG, usage) == follower->soak->pid) {
			follower->soak->pid = 0;
			return -EIO;
		}
		at = klat_soak_progress(follower->run);
		/* Counts polls, not time: what stops the workers can stop this process, too. */
		idle_polls = at == seen ? idle_polls + 1 : 0;
		seen = at;
		if (idle_polls * POLL_NS > follower->run->patience * KLAT_NS_PER_S)
			return -ETIMEDOUT;
		settled = has_settled(follower, now_ns, at);
		if (!end_ns && settled && begin(follower)) {
			int err = check_limit(follower);

			if (err)
				return err;
			follower->began_ns = now_ns;
			end_ns = now_ns + common->soak_s * KLAT_NS_PER_S;
			segment_end_ns = now_ns + segment_ns;
		}
		if (!end_ns && asked)
			return signal;
		if (!end_ns)
			continue;
		if (asked)
			klat_signals_ignore(); /* a second signal must not end the recording */
		ends = ends || asked || (settled && now_ns >= end_ns);
		/* A count of iterations can be visible before their samples. So this drains up to
		 * the count of the previous poll. */
		drain(follower, visible);
		note_state(follower, false);
		show(follower, now_ns);
		ends = ends || is_stopped(follower);
		if (ends || (settled && now_ns >= segment_end_ns) || is_full(follower)) {
			bool left_out;
			int err = end_segment(follower, &left_out);

			if (err || (ends && !left_out))
				return err;
			while (now_ns >= segment_end_ns)
				segment_end_ns += segment_ns;
		}
	}
}

int klat_soak_follow(struct klat_run *run, int *status, struct rusage *usage)
{
	struct follower follower;
	int result = make_follower(&follower, run);

	if (result)
		klat_error(run, -result, "out of memory for the histograms of a soak");
	else
		result = follow(&follower, status, usage);
	if (follower.soak->pid) {
		kill(follower.soak->pid, SIGKILL);
		wait4(follower.soak->pid, status, 0, usage);
	}
	klat_reading_free(follower.before);
	klat_reading_free(follower.after);
	return result;
}

void klat_soak_free(struct klat_run *run)
{
	struct klat_soak *soak = &run->library->soak;

	for (int m = 0; soak->histograms && m < run->benchmark->metric_count; m++)
		klat_histogram_free(&soak->histograms[m]);
	free(soak->histograms);
}
