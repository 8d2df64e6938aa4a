/* SPDX-License-Identifier: MIT */
/*
 * Bytes that go round a chain of watched descriptors, and what an event loop takes to see to it: n
 * pairs, a bytes under way at once, w written in all. A sample is one round. Timed apart: having
 * every pair watched; the loop, from when the first bytes are there until the last is read; ending
 * the watches; and, as total, the first two with the first writes between. Not timed: making the
 * descriptors, drawing random numbers, laying down which pair gets how many bytes. The traps: a
 * loop that registers lazily hides the price of it in its first pass, so each registration ends
 * with a pass that finds nothing; and one whose time is mostly that of reads and writes makes loops
 * look alike, so --backend none makes the same ones without asking which descriptor is readable.
 */
#include "eventloop.h"

#include "calls.h"
#include "klat.h"
#include "pairs.h"

#include <limits.h>
#include <malloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	TOTAL,
	REGISTRATION,
	LOOP,
	TEARDOWN
};

struct options {
	int64_t pairs, active, writes, batch;
	int backend, descriptor;
	bool timers, priorities, fresh, count_calls;
};

/* What is going on, for those who count system calls. */
enum phase {
	REGISTERING,
	LOOPING,
	TEARING_DOWN,
	PHASES
};

struct state {
	struct loop loop;
	struct tally tally;
	volatile int phase;
	int64_t calls[PHASES];
};

#define MOST_PAIRS 100000
/* Draws of a round that go round again: enough that what they cost the cache is a real loop's. */
#define MOST_DRAWS 65536
/* Memory for what a library allocates: as a whole, and for each pair. */
#define RESERVE (1 << 20)
#define RESERVE_EACH 1024
/* A byte that is not there within this time is lost. */
#define LOST_NS INT64_C(200000000)

static const char *const backend_names[] = {
	"epoll", "epoll-oneshot", "epoll-edge",    "poll",   "select", "libev", "libevent",
	"libuv", "io_uring-poll", "io_uring-read", "dasynq", "none",   NULL
};
static const struct backend *const backends[] = {
	&backend_epoll,         &backend_epoll_oneshot, &backend_epoll_edge, &backend_poll,
	&backend_select,        &backend_libev,         &backend_libevent,   &backend_libuv,
	&backend_io_uring_poll, &backend_io_uring_read, &backend_dasynq,     &backend_none
};
static const char *const descriptors[] = { "socketpair", "pipe", "eventfd", NULL };

#define AT(field) offsetof(struct options, field)
static const struct klat_option options[] = {
	{ "backend", "NAME",
	  "what tells which descriptors are readable: epoll, epoll-oneshot, epoll-edge, poll, "
	  "select, libev, libevent, libuv, io_uring-poll, io_uring-read, dasynq, or none",
	  KLAT_CHOICE, AT(backend), 0, 0, backend_names, false },
	{ "pairs", "N",
	  "watched descriptors, each with one to write to; default: 1000, or 100 where "
	  "instructions are counted",
	  KLAT_INTEGER, AT(pairs), 1, MOST_PAIRS, NULL, false },
	{ "active", "N", "bytes under way at once; default: a fifth of the pairs", KLAT_INTEGER,
	  AT(active), 1, MOST_PAIRS, NULL, false },
	{ "writes", "N",
	  "bytes written in a round, the first ones among them; default: 10000, or 1000 where "
	  "instructions are counted",
	  KLAT_INTEGER, AT(writes), 1, 10000000, NULL, false },
	{ "timers", NULL, "a timer for each pair, set anew in each callback", KLAT_FLAG, AT(timers),
	  0, 0, NULL, false },
	{ "priorities", NULL, "a random priority for each pair, of five", KLAT_FLAG, AT(priorities),
	  0, 0, NULL, false },
	{ "batch", "N",
	  "handle at most this many events in a pass; 0 for no limit but the "
	  "backend's",
	  KLAT_INTEGER, AT(batch), 0, MOST_PAIRS, NULL, false },
	{ "descriptor", "socketpair|pipe|eventfd", "what a pair is", KLAT_CHOICE, AT(descriptor), 0,
	  0, descriptors, false },
	{ "fresh", NULL, "make the descriptors anew for each round", KLAT_FLAG, AT(fresh), 0, 0,
	  NULL, false },
	{ "count-syscalls", NULL,
	  "count the system calls of one more round, in a traced process of its own, before the "
	  "timed ones",
	  KLAT_FLAG, AT(count_calls), 0, 0, NULL, true },
};

static const struct options defaults;

static const struct klat_metric metrics[] = {
	[TOTAL] = { "total", "a round but for its teardown: registration, first bytes, loop",
		    true },
	[REGISTRATION] = { "registration", "every pair watched, and a pass that finds nothing",
			   true },
	[LOOP] = { "loop", "first bytes there to last byte read", true },
	[TEARDOWN] = { "teardown", "no pair watched any more", true },
};

#define PUBLISHED_CASE(active, timers, priorities, batch)                                          \
	"pairs=1000;active=" active ";writes=10000;timers=" timers ";priorities=" priorities       \
	";batch=" batch ";descriptor=socketpair"
#define PUBLISHED_PAIR(params, total, loop, about)                                                 \
	{ "total", params, 1000.0 * (total), "ns", about },                                        \
	{                                                                                          \
		"loop", params, 1000.0 * (loop), "ns", about                                       \
	}
#define LIBEV "libev, as published with Dasynq; machine not stated, one run"
#define DASYNQ "Dasynq, as published by its author; machine not stated, one run"

static const struct klat_published published[] = {
	PUBLISHED_PAIR(PUBLISHED_CASE("200", "yes", "no", "0"), 9513, 9167, LIBEV),
	PUBLISHED_PAIR(PUBLISHED_CASE("200", "yes", "no", "0"), 10020, 9562, DASYNQ),
	PUBLISHED_PAIR(PUBLISHED_CASE("200", "no", "no", "0"), 7802, 7465, LIBEV),
	PUBLISHED_PAIR(PUBLISHED_CASE("200", "no", "no", "0"), 9398, 9004, DASYNQ),
	PUBLISHED_PAIR(PUBLISHED_CASE("800", "no", "no", "0"), 6700, 6077, LIBEV),
	PUBLISHED_PAIR(PUBLISHED_CASE("800", "no", "no", "0"), 8543, 7913, DASYNQ),
	PUBLISHED_PAIR(PUBLISHED_CASE("200", "yes", "yes", "0"), 8518, 7890,
		       LIBEV ", 1,000 priorities"),
	PUBLISHED_PAIR(PUBLISHED_CASE("200", "yes", "yes", "0"), 11466, 10727,
		       DASYNQ ", 1,000 priorities"),
	PUBLISHED_PAIR(PUBLISHED_CASE("200", "yes", "yes", "16"), 9410, 8683,
		       DASYNQ ", 1,000 priorities, at most 16 events a pass"),
};

static int configure(struct klat_run *run)
{
	struct options *o = run->options;

	/* A round of the larger size takes ten seconds of an emulator. */
	if (!o->pairs)
		o->pairs = klat_counted() ? 100 : 1000;
	if (!o->writes)
		o->writes = klat_counted() ? 1000 : 10000;
	if (!o->active)
		o->active = o->pairs < 5 ? 1 : o->pairs / 5;
	if (o->active > o->pairs)
		return klat_usage(run, "--active %lld must not exceed --pairs %lld",
				  (long long)o->active, (long long)o->pairs);
	if (o->writes < o->active)
		return klat_usage(run,
				  "--writes %lld must not be below --active %lld: the active bytes "
				  "are the first writes",
				  (long long)o->writes, (long long)o->active);
	run->cpu_count = 1;
	/* An event takes a microsecond or two; traced, or among many descriptors, far longer. And
	 * poll() looks at every pair in each pass. */
	run->patience += o->writes / 10000 + o->writes / o->active * o->pairs / 10000000;
	for (int metric = TOTAL; metric <= TEARDOWN; metric++)
		klat_use_metric(run, metric, 1);
	return 0;
}

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

/* The first bytes, evenly spaced; true but for the faults that --plant asks for. */
static void send_first(const struct klat_run *run, struct loop *loop, int64_t i)
{
	bool stray = i == 0 && klat_planted(run, "stray"),
	     lost = i == 0 && klat_planted(run, "lost");
	const struct pair *pair = loop->pairs;
	struct pair elsewhere = *pair;

	/* To the second pair instead of the first, which it was meant for. */
	elsewhere.out = loop_next(loop, pair)->out;
	if (!lost)
		loop_send(loop, stray ? &elsewhere : pair);
	for (int32_t sent = 1; pair < loop->end; pair++, sent = 0)
		for (; sent < pair->first; sent++)
			loop_send(loop, pair);
}

/* Nothing came: whether that has lasted too long. */
static bool given_up(int64_t *since)
{
	int64_t now = klat_now_ns();

	if (!*since)
		*since = now;
	return now - *since > LOST_NS;
}

static int run_chain(struct loop *loop, int64_t writes)
{
	struct tally *tally = &loop->tally;
	int64_t empty_since = 0;
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
		if (given_up(&empty_since))
			break;
	}
	return err ? err : loop->error;
}

static int play_round(struct klat_worker *worker, struct state *state, int64_t i,
		      uint64_t samples[])
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct loop *loop = &state->loop;
	uint64_t began, started;
	int err;

	draw_round(loop, i);
	pairs_begin(loop);
	loop->tally = (struct tally){ 0 };
	loop->error = 0;

	state->phase = REGISTERING;
	began = klat_stamp_begin();
	err = loop->backend->watch(loop);
	if (!err)
		err = loop->backend->pass(loop);
	samples[REGISTRATION] = klat_stamp_end(worker) - began;
	state->phase = PHASES;
	if (err)
		return err;
	send_first(run, loop, i);
	state->phase = LOOPING;
	started = klat_stamp_begin();
	klat_inject(run, i);
	err = run_chain(loop, o->writes);
	samples[TOTAL] = klat_stamp_end(worker);
	state->phase = TEARING_DOWN;
	samples[LOOP] = samples[TOTAL] - started;
	samples[TOTAL] -= began;
	if (err)
		return err;
	started = klat_stamp_begin();
	err = loop->backend->unwatch(loop);
	samples[TEARDOWN] = klat_stamp_end(worker) - started;
	state->phase = PHASES;
	loop->tally.wrong_pairs = pairs_off_plan(loop);
	return err;
}

static void add_tally(struct tally *sum, const struct tally *tally)
{
	const int64_t *from = (const int64_t *)tally;
	int64_t *to = (int64_t *)sum;

	for (size_t i = 0; i < sizeof(*tally) / sizeof(*from); i++)
		to[i] += from[i];
}

/* Between rounds. klat_rest() suits short iterations; after a long one, sleep in proportion. */
static void rest(struct klat_worker *worker, int64_t round_ns)
{
	if (round_ns < 40000000)
		klat_rest(worker);
	else
		klat_sleep(worker, round_ns / 8);
}

/* What the kernel does not know or does not allow, it says in one of these ways. */
static bool refused(const struct backend *backend, int err)
{
	return backend->denied && (err == -EPERM || err == -EACCES || err == -ENOSYS ||
				   err == -EINVAL || err == -EOPNOTSUPP);
}

static int failed(struct klat_run *run, int err, const char *what)
{
	const struct options *o = run->options;
	const struct backend *backend = ((struct state *)run->state)->loop.backend;

	if (refused(backend, err))
		return klat_skip(run, "%s refused: %s; %s", backend_names[o->backend],
				 strerror(-err), backend->denied);
	return klat_error(run, -err, "%s: cannot %s: %s", backend_names[o->backend], what,
			  strerror(-err));
}

/*
 * A library may allocate and free in every round. So memory is taken and touched beforehand, and
 * free() keeps it: no page is faulted in while a round is timed.
 */
static int reserve_memory(const struct options *o)
{
	const size_t size = RESERVE + o->pairs * RESERVE_EACH;
	char *memory;

	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	memory = malloc(size);
	if (!memory)
		return -ENOMEM;
	/* Not memset(), which the compiler may leave out before free(). */
	for (size_t at = 0; at < size; at += 4096)
		((volatile char *)memory)[at] = 0;
	free(memory);
	return 0;
}

static int looper(struct klat_worker *worker)
{
	struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	struct loop *loop = &state->loop;
	int err = reserve_memory(o);

	if (!err)
		err = loop->backend->open(loop);
	if (err)
		return failed(run, err, "begin");
	for (int64_t i = klat_first(run); i < klat_end(run); i++) {
		uint64_t samples[TEARDOWN + 1];
		int64_t began = klat_now_ns();

		if (klat_iteration(worker, i))
			state->tally = (struct tally){ 0 };
		err = play_round(worker, state, i, samples);
		if (err)
			return failed(run, err, "play a round");
		for (int metric = TOTAL; metric <= TEARDOWN; metric++)
			klat_series(run, metric, 0)[i] = samples[metric];
		add_tally(&state->tally, &loop->tally);
		if (o->fresh) {
			pairs_close(loop);
			err = pairs_open(loop);
		}
		if (err)
			return failed(run, err, "make descriptors anew");
		rest(worker, klat_now_ns() - began);
	}
	loop->backend->close(loop);
	return 0;
}

/* Two rounds, of which the second is counted; in a process of its own. */
static int counted_rounds(void *argument)
{
	struct klat_run *run = argument;
	struct state *state = run->state;
	struct klat_worker nobody = { .run = run };
	uint64_t samples[TEARDOWN + 1];
	int err = state->loop.backend->open(&state->loop);

	if (!err)
		err = play_round(&nobody, state, -2, samples);
	memset(state->calls, 0, sizeof(state->calls));
	if (!err)
		err = play_round(&nobody, state, -1, samples);
	return err;
}

static int count_calls(struct klat_run *run)
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
	return err ? klat_error(run, -err, "cannot count system calls: %s", strerror(-err)) : 0;
}

/* What this backend, on this machine, cannot do. */
static int check_backend(struct klat_run *run, const struct backend *backend)
{
	const struct options *o = run->options;
	const char *name = backend_names[o->backend];
	int64_t files = pairs_files(o->pairs, o->descriptor), hard = 0;
	int err;

	if (!backend)
		return klat_skip(run, "this program was built without %s: %s, then build again",
				 name,
				 !strcmp(name, "dasynq") ? "give its headers to make DASYNQ=DIR"
							 : "install its library by scripts/deps "
							   "eventloop");
	if (o->priorities && backend->no_priorities)
		return klat_skip(run, "%s has no priorities", name);
	if (o->batch && backend->no_batch)
		return klat_skip(run, "%s has no limit on the events of a pass", name);
	if (backend->most_pairs && o->pairs > backend->most_pairs)
		return klat_skip(run, "%s watches %d pairs at most, not %lld", name,
				 backend->most_pairs, (long long)o->pairs);
	err = pairs_raise_limit(files, &hard);
	if (err == -EMFILE)
		return klat_skip(run,
				 "%lld pairs take %lld open files, and the hard limit is %lld "
				 "(ulimit -Hn): raise it, or use fewer --pairs",
				 (long long)o->pairs, (long long)files, (long long)hard);
	return err ? klat_error(run, -err, "cannot raise the limit on open files: %s",
				strerror(-err))
		   : 0;
}

static int make_loop(struct klat_run *run, struct loop *loop)
{
	const struct options *o = run->options;
	uint32_t draws = 1;

	while (draws < o->writes + o->pairs && draws < MOST_DRAWS)
		draws *= 2;
	loop->count = o->pairs;
	loop->batch = o->batch;
	loop->descriptor = o->descriptor;
	loop->has_timers = o->timers;
	loop->has_priorities = o->priorities;
	loop->takes_all = loop->backend->takes_all;
	loop->pairs = calloc(loop->count, sizeof(*loop->pairs));
	loop->draws = calloc(draws, sizeof(*loop->draws));
	if (!loop->pairs || !loop->draws)
		return -ENOMEM;
	loop->end = loop->pairs + loop->count;
	loop->draw_mask = draws - 1;
	pairs_plan(loop, o->active, o->writes);
	return pairs_open(loop);
}

static int setup(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	int err;

	state->loop.backend = backends[o->backend];
	err = check_backend(run, state->loop.backend);
	if (err)
		return err;
	err = make_loop(run, &state->loop);
	if (err)
		return klat_error(run, -err, "cannot make %lld pairs: %s", (long long)o->pairs,
				  strerror(-err));
	if (o->count_calls)
		err = count_calls(run);
	/* Of one thread: of several, the kernel counts references to a file in each call. */
	klat_worker_add(run, "loop", 0, KLAT_HIGH, looper)->process = true;
	return err;
}

static void count_all(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	const struct tally *tally = &state->tally;

	klat_count(run, "written", tally->writes);
	klat_count(run, "read", tally->reads);
	klat_count(run, "passes", tally->passes);
	klat_count(run, "empty_passes", tally->empty);
	klat_count(run, "events_per_pass", tally->passes ? tally->reads / tally->passes : 0);
	klat_count(run, "spurious", tally->spurious);
	klat_count(run, "wrong_bytes", tally->wrong_bytes);
	klat_count(run, "wrong_pairs", tally->wrong_pairs);
	if (o->timers) {
		klat_count(run, "timers_set", tally->rearmed);
		klat_count(run, "timers_fired", tally->fired);
	}
	if (o->priorities && !state->loop.backend->polls_on)
		klat_count(run, "disordered", tally->disordered);
	if (o->count_calls) {
		klat_count(run, "calls_registration", state->calls[REGISTERING]);
		klat_count(run, "calls_loop", state->calls[LOOPING]);
		klat_count(run, "calls_teardown", state->calls[TEARING_DOWN]);
		klat_count(run, "calls_per_1000_events", 1000 * state->calls[LOOPING] / o->writes);
	}
}

static int verify(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	const struct tally *tally = &state->tally;
	int64_t wanted = o->writes * klat_observed(run), least = o->pairs * klat_observed(run);

	count_all(run);
	if (tally->writes != wanted || tally->reads != wanted)
		klat_invalid(run, "%lld bytes were written and %lld read, not %lld",
			     (long long)tally->writes, (long long)tally->reads, (long long)wanted);
	if (tally->wrong_bytes)
		klat_invalid(run, "%lld bytes arrived at the wrong descriptor",
			     (long long)tally->wrong_bytes);
	if (tally->wrong_pairs)
		klat_invalid(run, "%lld pairs read another number of bytes than planned",
			     (long long)tally->wrong_pairs);
	if (tally->disordered && !state->loop.backend->polls_on)
		klat_invalid(run, "%lld events were handled after less urgent ones",
			     (long long)tally->disordered);
	/* One for each pair, and one in each callback: as many as reads, where these take one byte.
	 */
	if (!state->loop.takes_all)
		least += tally->reads;
	if (o->timers && tally->rearmed < least)
		klat_invalid(run, "timers were set %lld times, not %lld", (long long)tally->rearmed,
			     (long long)least);
	/* They are put off for ten seconds each time. */
	if (tally->fired)
		klat_disturbed(run, "timers fired: a pair waited ten seconds for its turn");
	return 0;
}

static const struct klat_benchmark eventloop = {
	.name = "eventloop",
	.summary = "bytes that go round watched descriptors, by event loop",
	.description =
		"N pairs of descriptors, each watched by an event loop. Some bytes begin, evenly "
		"spaced; each callback reads its byte and writes one to the next pair, until all "
		"are written and read. A sample is one such round, its registration, loop and "
		"teardown timed apart; total is the first two, as published.\n\n"
		"All backends make the same reads and writes, which --backend none makes without "
		"asking which descriptor is readable: what another takes more is what its event "
		"loop costs. No pass waits. libev registers in its first pass, so that a pass that "
		"finds nothing ends every registration; it also keeps what it once registered, so "
		"that --fresh makes a difference to it.\n\n"
		"Timers are set to 10 to 11 seconds and do not fire. Random numbers are drawn "
		"before each round, the same for every backend and run. Every byte is checked, and "
		"each pair's count against the plan. Backends whose library was missing when klat "
		"was built are skipped, and so is what a library cannot do.",
	.examples = "eventloop\tepoll, the published workload: 1,000 pairs, 200 bytes, 10,000 "
		    "writes\n"
		    "eventloop --backend libev --timers\tlibev, with a timer for each pair\n"
		    "eventloop --backend io_uring-read --count-syscalls\thow few system calls do",
	KLAT_OPTIONS(options, defaults),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	.state_size = sizeof(struct state),
	.iterations = 20,
	.warmup = 4,
	.policy = SCHED_FIFO,
	.high_priority = 50,
	.faults = { "lost", "stray" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};

int main(int argc, char **argv)
{
	return klat_main(&eventloop, argc, argv);
}
