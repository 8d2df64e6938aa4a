/* SPDX-License-Identifier: MIT */
/*
 * A segment of a soak is judged and recorded like a run. Its evidence is the difference of two
 * readings. The supervisor takes them from /proc and shared memory while the workers run.
 */
#include "run/run.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	READINGS = 5,       /* the most that one reading takes */
	CLOCK_SET_MS = 100, /* less can be a correction of the clock's rate */
};

struct klat_reading *klat_reading_make(const struct klat_run *run)
{
	struct klat_reading *reading = calloc(1, sizeof(*reading));

	if (!reading)
		return NULL;
	reading->workers = calloc(run->library->worker_capacity, sizeof(*run->workers));
	reading->state = calloc(1, run->benchmark->state_size + 1);
	if (reading->workers && reading->state)
		return reading;
	klat_reading_free(reading);
	return NULL;
}

void klat_reading_free(struct klat_reading *reading)
{
	if (!reading)
		return;
	free(reading->workers);
	free(reading->state);
	free(reading);
}

/* proc_pid_stat(5): fields 10 and 12. The name in field 2 can contain spaces. */
static void read_faults(struct klat_worker *worker, const char *text)
{
	long long minor = -1, major = -1;
	const char *at = strrchr(text, ')');

	if (at)
		sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %lld %*u %lld", &minor, &major);
	worker->minor_faults = minor;
	worker->major_faults = major;
}

static bool is_held(const struct klat_worker *worker)
{
	enum { PROCESSOR = 39 };
	klat_cpu_set set = { 0 };

	if (klat_is_deadline(worker->run))
		return klat_read_stat_field(worker->tid, PROCESSOR) == worker->cpu;
	return syscall(SYS_sched_getaffinity, worker->tid, sizeof(set), &set) > 0 &&
	       klat_cpu_weight(&set) == 1 && klat_cpu_in(&set, worker->cpu);
}

/* The worker's status file, with the rests at the time of the reading: a rest that begins or ends
 * meanwhile is counted in the file and not yet in `rests`, or the other way round. */
static bool read_status(struct klat_worker *worker, const struct klat_worker *live, char *text,
			size_t size)
{
	ssize_t length;

	for (int i = 0; i < READINGS; i++) {
		worker->before_rest = __atomic_load_n(&live->before_rest, __ATOMIC_ACQUIRE);
		worker->rests = live->rests;
		length = klat_task_read(worker->account.task, "status", text, size);
		if (worker->before_rest == __atomic_load_n(&live->before_rest, __ATOMIC_ACQUIRE) &&
		    worker->rests == live->rests)
			break;
	}
	return length > 0;
}

/* Replace the counts of the worker by those since it started. */
static void read_worker(struct klat_worker *worker, const struct klat_worker *live)
{
	const char *task = worker->account.task;
	struct klat_traits traits;
	char text[8192];

	if (read_status(worker, live, text, sizeof(text))) {
		worker->wakeups = (worker->before_rest < 0
					   ? klat_count_after(text, "\nvoluntary_ctxt_switches")
					   : worker->before_rest) -
				  worker->rests;
		worker->voluntary = worker->wakeups;
		worker->involuntary = klat_count_after(text, "nonvoluntary_ctxt_switches");
		worker->account.traced = klat_count_after(text, "\nTracerPid:") > 0;
	}
	if (klat_task_read(task, "stat", text, sizeof(text)) > 0)
		read_faults(worker, text);
	/* The worker goes on between the copy of its counts and the reading of its faults. */
	if (worker->other_faults >= 0)
		worker->expected_faults = worker->minor_faults - worker->other_faults;
	worker->migrations = klat_task_count(task, "sched", "nr_migrations");
	worker->wait_ns = -1;
	if (klat_task_read(task, "schedstat", text, sizeof(text)) > 0) {
		worker->account.cpu_ns = klat_count_after(text, "");
		worker->wait_ns = klat_count_after(text, " ");
	}
	worker->account.waited_ns = worker->wait_ns;
	worker->pinned = is_held(worker);
	klat_worker_read_policy(worker, worker->tid);
	klat_traits_read_scheduling(&traits, worker->tid);
	klat_traits_read_task(&traits, task);
	worker->account.changed = klat_traits_changed(&worker->account.traits, &traits);
}

/* The number of iterations that a worker has completed since the warm-up. If it begins a lap
 * between the two loads, the sum lacks this lap: it is less than what all have completed. */
static int64_t completed(const struct klat_worker *worker, const struct klat_run *run)
{
	const struct klat_soak *soak = &run->library->soak;
	const int64_t laps = __atomic_load_n(&worker->laps, __ATOMIC_ACQUIRE),
		      at = laps * run->iterations +
			   __atomic_load_n(&worker->iteration, __ATOMIC_ACQUIRE);

	return at < soak->progress - soak->lap / 2 ? at + soak->lap : at;
}

int64_t klat_soak_progress(const struct klat_run *run)
{
	struct klat_soak *soak = &run->library->soak;
	int64_t least = INT64_MAX;

	klat_for_each_worker(worker, run)
		least = MIN(least, completed(worker, run));
	if (run->worker_count && least > soak->progress)
		soak->progress = least;
	return least;
}

int64_t klat_soak_farthest(const struct klat_run *run)
{
	int64_t most = 0;

	klat_for_each_worker(worker, run)
		most = MAX(most, completed(worker, run));
	return most;
}

/* Read the iterations, and the counts of the same iterations. If something interrupts the reading,
 * the workers go on. So read again. */
static void read_counts(struct klat_reading *reading, const struct klat_run *run)
{
	const size_t workers = run->worker_count * sizeof(*run->workers);

	for (int i = 0; i < READINGS; i++) {
		reading->iterations = klat_soak_progress(run);
		memcpy(reading->workers, run->workers, workers);
		memcpy(reading->state, run->state, run->benchmark->state_size);
		if (klat_soak_progress(run) - reading->iterations <= 1)
			break;
	}
}

static void take(struct klat_reading *reading, const struct klat_run *run)
{
	memset(&reading->snapshot, 0, sizeof(reading->snapshot));
	klat_snapshot_take(&reading->snapshot, run);
	/* The clocks again: they must be of the same time as the counts. */
	klat_clocks_take(&reading->snapshot.clocks);
	read_counts(reading, run);
	for (int i = 0; i < run->worker_count; i++)
		read_worker(&reading->workers[i], &run->workers[i]);
	reading->sleeps = klat_stop_detector_sleeps(run);
	reading->stops = run->library->stops;
	klat_busy_take(&reading->busy, run);
}

/* The kernel's counts take a millisecond to read. Workers that spin on every CPU can stop the
 * supervisor for KLAT_SPIN_NS in between. Then read again, from the start of one of their rests. */
void klat_reading_take(struct klat_reading *reading, const struct klat_run *run)
{
	for (int i = 0; i < READINGS; i++) {
		const int64_t began_ns = klat_now_ns();

		take(reading, run);
		if (klat_now_ns() - began_ns < KLAT_REST_NS)
			break;
	}
}

void klat_reading_state(const struct klat_reading *before, const struct klat_reading *now,
			const struct klat_run *run, struct klat_kept *sample)
{
	sample->involuntary = 0;
	for (int i = 0; i < run->worker_count; i++)
		sample->involuntary += now->workers[i].involuntary - before->workers[i].involuntary;
	sample->stolen = klat_stolen(run, &before->snapshot, &now->snapshot);
	sample->smi = now->snapshot.smi < 0 ? -1 : now->snapshot.smi - before->snapshot.smi;
}

const struct klat_worker *klat_reading_unpinned(const struct klat_reading *reading,
						const struct klat_run *run)
{
	for (int i = 0; i < run->worker_count; i++)
		if (!reading->workers[i].pinned)
			return &run->workers[i];
	return NULL;
}

/* A negative count is unknown. If the worker rested during the first reading, `before` can contain
 * a switch that `from` no longer counts. The difference is then 0, not -1. */
static void subtract(int64_t *from, int64_t before)
{
	if (*from < 0 || before < 0)
		*from = -1;
	else
		*from = *from > before ? *from - before : 0;
}

static void subtract_worker(struct klat_worker *worker, const struct klat_worker *before)
{
	subtract(&worker->voluntary, before->voluntary);
	subtract(&worker->involuntary, before->involuntary);
	subtract(&worker->wakeups, before->wakeups);
	subtract(&worker->minor_faults, before->minor_faults);
	subtract(&worker->major_faults, before->major_faults);
	subtract(&worker->migrations, before->migrations);
	subtract(&worker->wait_ns, before->wait_ns);
	worker->children_ns -= before->children_ns;
	subtract(&worker->account.waited_ns, before->account.waited_ns);
	subtract(&worker->account.cpu_ns, before->account.cpu_ns);
	worker->account.traced |= before->account.traced;
	worker->account.changed = worker->account.changed ?: before->account.changed;
	worker->rests -= before->rests;
	worker->expected_faults -= before->expected_faults;
	worker->expected_switches -= before->expected_switches;
	worker->unsampled -= before->unsampled;
	worker->unneeded_sleeps -= before->unneeded_sleeps;
	worker->account.overruns -= before->account.overruns;
	worker->account.throttled -= before->account.throttled;
}

static void subtract_counts(void *counts, const void *before, size_t size)
{
	for (size_t i = 0; i < size / sizeof(int64_t); i++)
		((int64_t *)counts)[i] -= ((const int64_t *)before)[i];
}

/* A copy of `after` whose counts are those since `before`. NULL if there is no memory. */
static struct klat_reading *difference(const struct klat_run *run,
				       const struct klat_reading *before,
				       const struct klat_reading *after)
{
	const struct klat_benchmark *benchmark = run->benchmark;
	struct klat_reading *made = klat_reading_make(run);

	if (!made)
		return NULL;
	memcpy(made->workers, after->workers, run->worker_count * sizeof(*run->workers));
	memcpy(made->state, after->state, benchmark->state_size);
	for (int i = 0; i < run->worker_count; i++)
		subtract_worker(&made->workers[i], &before->workers[i]);
	subtract_counts(made->state + benchmark->counts_at, before->state + benchmark->counts_at,
			benchmark->counts_size);
	return made;
}

/* The samples are right, but their times follow the clock as it was at the segment's start. */
static void count_clock_set(struct klat_run *run)
{
	const struct klat_clocks *before = &run->library->before.clocks,
				 *after = &run->library->after.clocks;
	int64_t ms =
		(after->clock_ns - before->clock_ns - (after->boot_ns - before->boot_ns)) / 1000000;

	if (ms <= -CLOCK_SET_MS || ms >= CLOCK_SET_MS)
		klat_count(run, "clock_set_ms", ms);
}

static void judge_histograms(struct klat_run *run)
{
	int64_t above = 0, unkept = 0;

	klat_for_each_metric(m, run) {
		above += run->library->soak.histograms[m].above;
		unkept += run->library->soak.histograms[m].unkept;
	}
	if (run->library->soak.overwritten)
		klat_invalid(run,
			     "%lld iterations were overwritten before the supervisor had read "
			     "them",
			     (long long)run->library->soak.overwritten);
	if (run->library->common.limit_ns)
		klat_count(run, "above_limit", above);
	if (unkept)
		klat_count(run, "unkept", unkept);
}

/* klat's own request hides equal and higher requests of others. */
static void judge_latency_request(struct klat_run *run)
{
	const int32_t before = run->library->soak.latency_us;
	int32_t now;

	if (run->library->common.dma_latency >= 0 || before < 0)
		return;
	now = klat_latency_request(before);
	if (now >= 0 && now != before)
		klat_disturbed(run, "other programs changed their requests in "
				    "/dev/cpu_dma_latency since the soak began");
}

int klat_segment_end(const struct klat_run *run, const struct klat_reading *before,
		     const struct klat_reading *after, int64_t number)
{
	struct klat_library *library = calloc(1, sizeof(*library));
	struct klat_reading *since = difference(run, before, after);
	struct klat_run segment = *run;
	int err;

	if (!library || !since) {
		err = klat_error(&segment, ENOMEM, "out of memory for segment %lld",
				 (long long)number);
	} else {
		klat_neighbours_take(&run->library->neighbours, run);
		*library = *run->library;
		library->outcome = (struct klat_outcome){ KLAT_OK, "" };
		library->before = before->snapshot;
		library->after = after->snapshot;
		/* The settings at the start of the soak. */
		memcpy(library->before.settings, run->library->before.settings,
		       sizeof(library->before.settings));
		library->busy_before = before->busy;
		library->busy_after = after->busy;
		/* A stop adds two sleeps. If it lasts into the next segment, each segment counts
		 * one stop. */
		library->stops = after->stops - before->stops;
		if (before->sleeps >= 0 && after->sleeps >= 0)
			library->stops += (after->sleeps - before->sleeps + 1) / 2;
		library->start_ns = before->snapshot.clocks.clock_ns;
		library->elapsed_ns = after->snapshot.clocks.at_ns - before->snapshot.clocks.at_ns;
		library->common.run = number;
		library->counts = NULL;
		library->count_count = 0;
		segment.library = library;
		library->pairs = &segment;
		segment.outcome = &library->outcome;
		segment.workers = since->workers;
		for (int i = 0; i < run->worker_count; i++)
			segment.workers[i].account.elapsed_ns = library->elapsed_ns;
		segment.state = since->state;
		segment.warmup = segment.lead = 0;
		segment.iterations = segment.end = after->iterations - before->iterations;
		err = klat_run_judge(&segment);
	}
	if (!err) {
		count_clock_set(&segment);
		judge_histograms(&segment);
		judge_latency_request(&segment);
		err = library->soak.record(&segment, library->soak.session);
		run->library->soak.unrecorded = err;
		free(library->counts);
	}
	if (library && library->outcome.status > run->outcome->status)
		*run->outcome = library->outcome;
	if (!err)
		err = library->outcome.status;
	klat_reading_free(since);
	free(library);
	return err;
}
