/* SPDX-License-Identifier: MIT */
/* One round after another. All stamps are taken in run_round(). */
#include "round.h"

#include "pairs.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* Memory for the allocations of a library: in total, and for each pair. */
#define RESERVE (1 << 20)
#define RESERVE_EACH 1024
/* A byte that has not arrived within this time is lost. */
#define LOST_NS INT64_C(200000000)

static void draw_round(struct loop *loop, int64_t round)
{
	uint32_t *draws = (uint32_t *)loop->draws;
	/* The same numbers for a round in every run and backend. */
	uint64_t seed = round;

	for (int64_t i = 0; i <= loop->draw_mask && loop->has_timers; i++)
		draws[i] = (klat_draw(&seed) >> 32) * 1000000000 >> 32;
	for (struct pair *pair = loop->pairs; pair < loop->end && loop->has_priorities; pair++)
		pair->level = (klat_draw(&seed) >> 32) * LEVELS >> 32;
	loop->draw = 0;
}

/* Write the first bytes, evenly spaced, with the faults of --plant. */
static void send_first(const struct klat_run *run, struct loop *loop, int64_t i)
{
	bool stray = i == 0 && klat_planted(run, "stray"),
	     lost = i == 0 && klat_planted(run, "lost");
	const struct pair *pair = loop->pairs;
	struct pair elsewhere = *pair;

	/* The byte of the first pair goes to the second. */
	elsewhere.out = loop_next(loop, pair)->out;
	if (!lost)
		loop_send(loop, stray ? &elsewhere : pair);
	for (int32_t sent = 1; pair < loop->end; pair++, sent = 0)
		for (; sent < pair->first; sent++)
			loop_send(loop, pair);
}

static int run_chain(struct loop *loop, int64_t writes)
{
	struct tally *tally = &loop->tally;
	int64_t empty_since = 0, now;
	int err = 0;

	while (tally->reads < writes && !err && !loop->error) {
		int64_t reads = tally->reads;

		loop->last_level = 0;
		err = loop->backend->pass(loop);
		tally->passes++;
		if (tally->reads != reads) {
			empty_since = 0;
			continue;
		}
		tally->empty++;
		now = klat_now_ns();
		empty_since = empty_since ?: now;
		if (now - empty_since > LOST_NS)
			break;
	}
	return err ? err : loop->error;
}

static int run_round(struct klat_worker *worker, struct state *state, int64_t i, uint64_t samples[])
{
	const struct klat_run *run = worker->run;
	struct loop *loop = &state->loop;
	uint64_t began, started, registered, ended;
	int err;

	draw_round(loop, i);
	pairs_begin(loop);
	loop->tally = (struct tally){ 0 };
	loop->error = 0;

	state->phase = REGISTERING;
	began = klat_stamp_begin();
	err = loop->backend->watch(loop);
	err = err ?: loop->backend->pass(loop);
	registered = klat_stamp_end(worker);
	samples[REGISTRATION] = registered - began;
	state->phase = PHASES;
	if (err)
		return err;
	send_first(run, loop, i);
	state->phase = LOOPING;
	started = klat_stamp_begin();
	klat_inject(run, i);
	err = run_chain(loop, options.writes);
	ended = klat_stamp_end(worker);
	state->phase = TEARING_DOWN;
	samples[LOOP] = ended - started;
	samples[TOTAL] = ended - began;
	if (err)
		return err;
	started = klat_stamp_begin();
	err = loop->backend->unwatch(loop);
	samples[TEARDOWN] = klat_stamp_end(worker) - started;
	klat_sample_ended(worker, klat_series(run, REGISTRATION, 0), registered);
	klat_sample_ended(worker, klat_series(run, LOOP, 0), ended);
	klat_sample_ended(worker, klat_series(run, TOTAL, 0), ended);
	state->phase = PHASES;
	loop->tally.wrong_pairs = pairs_off_plan(loop);
	return err;
}

/* The errors for what the kernel does not know or does not allow. */
static bool refused(const struct backend *backend, int err)
{
	return backend->denied && (err == -EPERM || err == -EACCES || err == -ENOSYS ||
				   err == -EINVAL || err == -EOPNOTSUPP);
}

static int failed(struct klat_run *run, int err, const char *what)
{
	const struct backend *backend = ((struct state *)run->state)->loop.backend;

	if (refused(backend, err))
		return klat_skip(run, "%s refused: %s; %s", backend_names[options.backend],
				 strerror(-err), backend->denied);
	return klat_error(run, -err, "%s: cannot %s: %m", backend_names[options.backend], what);
}

/*
 * A library may allocate and free in every round. So memory is allocated and touched before the
 * rounds, and free() keeps it. No timed round then has a page fault for it.
 */
static int reserve_memory(void)
{
	const size_t size = RESERVE + options.pairs * RESERVE_EACH;
	char *memory;

	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	memory = malloc(size);
	if (!memory)
		return -ENOMEM;
	/* Not memset(): the compiler may omit it before free(). */
	for (size_t at = 0; at < size; at += 4096)
		((volatile char *)memory)[at] = 0;
	free(memory);
	return 0;
}

static int open_backend(struct loop *loop)
{
	const struct backend *backend = loop->backend;

	loop->own = calloc(1, backend->own);
	loop->each = calloc(loop->count, backend->each);
	return loop->own && loop->each ? backend->open(loop) : -ENOMEM;
}

int run_rounds(struct klat_worker *worker)
{
	struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct loop *loop = &state->loop;
	int err = reserve_memory() ?: open_backend(loop);

	if (err)
		return failed(run, err, "start");
	for (int64_t i = klat_first(run); klat_next(worker, &i); i++) {
		uint64_t samples[TEARDOWN + 1];
		int64_t began = klat_now_ns(), round_ns;

		if (klat_observed_from(worker, i))
			state->tally = (struct tally){ 0 };
		err = run_round(worker, state, i, samples);
		if (err)
			return failed(run, err, "run a round");
		for (int metric = TOTAL; metric <= TEARDOWN; metric++)
			klat_series(run, metric, 0)[i] = samples[metric];
		klat_add_counts(&state->tally, &loop->tally, sizeof(loop->tally));
		if (options.fresh) {
			pairs_close(loop);
			err = pairs_open(loop);
		}
		if (err)
			return failed(run, err, "make new descriptors");
		/* klat_rest() suits short rounds; after a long one, sleep in proportion. */
		round_ns = klat_now_ns() - began;
		if (round_ns < KLAT_SPIN_NS)
			klat_rest(worker);
		else
			klat_sleep(worker, round_ns / 8);
	}
	return 0;
}

static void trace_child(int (*action)(void *argument), void *argument)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(255);
	raise(SIGSTOP);
	_exit(-action(argument));
}

/* Count until the child ends. */
static int follow(pid_t pid, const volatile int *phase, int phases, int64_t *counts, int *status)
{
	bool inside = false;

	for (;;) {
		int signal = 0;

		if (WIFSTOPPED(*status) && WSTOPSIG(*status) == (SIGTRAP | 0x80)) {
			inside = !inside;
			if (inside && *phase < phases)
				counts[*phase]++;
		} else if (WIFSTOPPED(*status) && WSTOPSIG(*status) != SIGSTOP) {
			signal = WSTOPSIG(*status);
		}
		if (ptrace(PTRACE_SYSCALL, pid, NULL, signal) || waitpid(pid, status, 0) < 0)
			return -errno;
		if (!WIFSTOPPED(*status))
			return 0;
	}
}

/*
 * Count the system calls of a child that runs action(argument) in counts[*phase]. The child sets
 * *phase in shared memory. Phases from `phases` on are not counted. Returns the action's result, or
 * -errno if the child cannot be traced. ptrace() stops the child at each entry to the kernel and at
 * each return. That is much slower than the calls, so nothing is timed here. It needs no privilege.
 */
static int calls_count(int (*action)(void *argument), void *argument, const volatile int *phase,
		       int phases, int64_t *counts)
{
	int status, err;
	pid_t pid = fork();

	if (!pid)
		trace_child(action, argument);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -errno;
	if (WIFEXITED(status))
		return -EPERM;
	err = ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)
		      ? -errno
		      : follow(pid, phase, phases, counts, &status);
	if (err) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		return err;
	}
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

/* Count the second of two rounds. Runs in a child process. */
static int counted_rounds(void *argument)
{
	struct klat_run *run = argument;
	struct state *state = run->state;
	struct klat_worker nobody = { .run = run };
	uint64_t samples[TEARDOWN + 1];
	int err = open_backend(&state->loop);

	err = err ?: run_round(&nobody, state, -2, samples);
	memset(state->calls, 0, sizeof(state->calls));
	err = err ?: run_round(&nobody, state, -1, samples);
	return err;
}

int count_calls(struct klat_run *run)
{
	struct state *state = run->state;
	int err;

	state->phase = PHASES;
	err = calls_count(counted_rounds, run, &state->phase, PHASES, state->calls);
	if (err == -EPERM || err == -ENOSYS || refused(state->loop.backend, err))
		return klat_skip(run,
				 "cannot count system calls: ptrace() or the backend is refused: "
				 "%s; a container may need the capability SYS_PTRACE",
				 strerror(-err));
	if (err == -EAGAIN)
		return klat_cannot_start(run, -err, "the process whose system calls are counted");
	return err ? klat_error(run, -err, "cannot count system calls: %m") : 0;
}
