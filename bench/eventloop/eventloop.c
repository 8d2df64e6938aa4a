/* SPDX-License-Identifier: MIT */
/*
 * Bytes travel along a chain of watched descriptors. N pairs, A bytes under way at once, W bytes
 * written in a round. A sample is one round.
 *
 * Timed, each part by itself:
 * - registration: watching every pair
 * - loop: from the first bytes written until the last byte is read
 * - teardown: ending the watches
 * - total: registration, the first writes, and loop
 * Not timed: making the descriptors, drawing random numbers, planning how many bytes each pair
 * gets.
 *
 * Traps:
 * - A loop that registers lazily hides that cost in its first pass. So each registration ends with
 * a pass that finds nothing.
 * - Loops look alike if reads and writes take most of the time. So --backend none makes the same
 *   reads and writes without asking which descriptor is readable.
 */
#include "round.h"

#include "pairs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/select.h>

#define MOST_PAIRS 100000
/* The draws of a round repeat after this many. They take as much cache as those of a real loop. */
#define MOST_DRAWS 65536
const char *const backend_names[] = {
	"epoll", "epoll-oneshot", "epoll-edge",    "poll",   "select", "libev", "libevent",
	"libuv", "io_uring-poll", "io_uring-read", "dasynq", "none",   NULL
};
static const struct backend *const backends[] = {
	&backend_epoll,         &backend_epoll_oneshot, &backend_epoll_edge, &backend_poll,
	&backend_select,        &backend_libev,         &backend_libevent,   &backend_libuv,
	&backend_io_uring_poll, &backend_io_uring_read, &backend_dasynq,     &backend_none
};

struct options options;

static const struct klat_option option_table[] = {
	{ "backend", "how readable descriptors are found", KLAT_CHOICE_OF(backend, backend_names) },
	{ "pairs",
	  "watched descriptors, each with a descriptor to write to; default: 1000, or 100 in "
	  "counted mode",
	  KLAT_INTEGER(pairs, 1, MOST_PAIRS) },
	{ "active", "bytes under way at once; default: a fifth of the pairs",
	  KLAT_INTEGER(active, 1, MOST_PAIRS) },
	{ "writes",
	  "bytes written in a round, including the first ones; default: 10000, or 1000 in counted "
	  "mode",
	  KLAT_INTEGER(writes, 1, 10000000) },
	{ "timers", "a timer for each pair, set again in each callback", KLAT_FLAG(timers) },
	{ "priorities", "one of five priorities for each pair, at random", KLAT_FLAG(priorities) },
	{ "batch", "handle at most this many events in a pass; 0: the backend's own limit",
	  KLAT_INTEGER(batch, 0, MOST_PAIRS) },
	{ "descriptor", "what a pair is",
	  KLAT_CHOICE(descriptor, "socketpair", "pipe", "eventfd") },
	{ "fresh", "make new descriptors for each round", KLAT_FLAG(fresh) },
	{ "count-syscalls",
	  "count the system calls of one more round, in a traced child process, before the timed "
	  "rounds",
	  KLAT_FLAG(count_calls), .unrecorded = true },
};

static const struct klat_metric metrics[] = {
	[TOTAL] = { "total", "a round without its teardown: registration, first bytes, loop",
		    .path_length = true, .taken_by = "loop" },
	[REGISTRATION] = { "registration", "registration of every pair, and a pass without events",
			   .path_length = true, KLAT_WITHIN("run_round", "loop") },
	[LOOP] = { "loop", "first bytes written to last byte read", .path_length = true,
		   KLAT_WITHIN("run_round", "loop") },
	[TEARDOWN] = { "teardown", "removal of every pair", .path_length = true,
		       KLAT_WITHIN("run_round", "loop") },
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
	/* A round of the larger size takes an emulator ten seconds. */
	if (!options.pairs)
		options.pairs = klat_counted() ? 100 : 1000;
	if (!options.writes)
		options.writes = klat_counted() ? 1000 : 10000;
	if (!options.active)
		options.active = options.pairs < 5 ? 1 : options.pairs / 5;
	if (options.active > options.pairs)
		return klat_usage(run, "--active %lld must not exceed --pairs %lld",
				  (long long)options.active, (long long)options.pairs);
	if (options.writes < options.active)
		return klat_usage(run,
				  "--writes %lld must not be below --active %lld: the active bytes "
				  "are the first writes",
				  (long long)options.writes, (long long)options.active);
	/* An event takes a microsecond or two, far longer if it is traced or among many
	 * descriptors. poll() looks at every pair in each pass. */
	run->patience +=
		options.writes / 10000 + options.writes / options.active * options.pairs / 10000000;
	return 0;
}

/* Skip what this backend cannot do on this machine. */
static int check_backend(struct klat_run *run, const struct backend *backend)
{
	const char *name = backend_names[options.backend];

	if (!backend)
		return klat_skip(
			run, "this program was built without %s: %s, then build again", name,
			!strcmp(name, "dasynq") ? "give its headers to make DASYNQ=DIR"
						: "install its library by scripts/deps eventloop");
	if (options.priorities && backend->no_priorities)
		return klat_skip(run, "%s has no priorities", name);
	if (options.batch && backend->no_batch)
		return klat_skip(run, "%s has no limit on the events of a pass", name);
	if (backend->most_pairs && options.pairs > backend->most_pairs)
		return klat_skip(run, "%s watches %d pairs at most, not %lld", name,
				 backend->most_pairs, (long long)options.pairs);
	return klat_allow_files(run, (options.descriptor == EVENTFD ? 1 : 2) * options.pairs +
					     OTHER_FILES);
}

static int make_loop(struct loop *loop)
{
	uint32_t draws = 1;

	while (draws < options.writes + options.pairs && draws < MOST_DRAWS)
		draws *= 2;
	loop->count = options.pairs;
	loop->batch = options.batch;
	loop->descriptor = options.descriptor;
	loop->has_timers = options.timers;
	loop->has_priorities = options.priorities;
	loop->takes_all = loop->backend->takes_all;
	loop->pairs = calloc(loop->count, sizeof(*loop->pairs));
	loop->draws = calloc(draws, sizeof(*loop->draws));
	if (!loop->pairs || !loop->draws)
		return -ENOMEM;
	loop->end = loop->pairs + loop->count;
	loop->draw_mask = draws - 1;
	pairs_plan(loop, options.active, options.writes);
	return pairs_open(loop);
}

static int setup(struct klat_run *run)
{
	struct state *state = run->state;
	int err;

	state->loop.backend = backends[options.backend];
	err = check_backend(run, state->loop.backend);
	if (err)
		return err;
	err = make_loop(&state->loop);
	if (err)
		return klat_error(run, -err, "cannot make %lld pairs: %m",
				  (long long)options.pairs);
	for (const struct pair *pair = state->loop.pairs; pair < state->loop.end; pair++)
		if (state->loop.backend == &backend_select && pair->in >= FD_SETSIZE)
			return klat_skip(
				run,
				"select takes only descriptors below %d (FD_SETSIZE): give "
				"fewer --pairs",
				FD_SETSIZE);
	return options.count_calls ? count_calls(run) : 0;
}

/* In a process with several threads, each call counts references to its file. */
static const struct klat_worker workers[] = { { "loop", .body = run_rounds, .process = true } };

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;
	const struct tally *tally = &state->tally;
	const int64_t wanted = options.writes * klat_observed(run);
	/* A timer is set once for each pair, and in each callback. A callback is a read, unless
	 * reads take all bytes. */
	const int64_t settings =
		options.pairs * klat_observed(run) + (state->loop.takes_all ? 0 : tally->reads);

	klat_require(
		run,
		{ "written", tally->writes, KLAT_EXACTLY, wanted,
		  .reason = "{got} bytes were written, not {wanted}" },
		{ "read", tally->reads, KLAT_EXACTLY, wanted,
		  .reason = "{got} bytes were read, not {wanted}" },
		{ "passes", .got = tally->passes }, { "empty_passes", .got = tally->empty },
		{ "events_per_pass", .got = tally->passes ? tally->reads / tally->passes : 0 },
		{ "spurious", .got = tally->spurious },
		{ "wrong_bytes", tally->wrong_bytes, KLAT_NEVER, wanted,
		  .reason = "{got} of {wanted} bytes arrived at the wrong descriptor" },
		{ "wrong_pairs", tally->wrong_pairs, KLAT_NEVER, options.pairs * klat_observed(run),
		  .reason = "{got} of {wanted} pairs read another number of bytes than planned" },
		{ "timers_set", tally->rearmed, KLAT_AT_LEAST, settings,
		  "timers were set {got} times, not {wanted}", .unless = !options.timers },
		/* Each callback defers its timer by ten seconds. */
		{ "timers_fired", tally->fired, KLAT_NEVER,
		  .reason = "timers fired: a pair waited ten seconds for its turn",
		  .disturbs = true, .unless = !options.timers },
		{ "disordered", tally->disordered, KLAT_NEVER, wanted,
		  "{got} of {wanted} events were handled after less urgent ones",
		  .unless = !options.priorities || state->loop.backend->polls_on },
		{ "calls_registration", .got = state->calls[REGISTERING],
		  .unless = !options.count_calls },
		{ "calls_loop", .got = state->calls[LOOPING], .unless = !options.count_calls },
		{ "calls_teardown", .got = state->calls[TEARING_DOWN],
		  .unless = !options.count_calls },
		{ "calls_per_1000_events", .got = 1000 * state->calls[LOOPING] / options.writes,
		  .unless = !options.count_calls });
}

const struct klat_benchmark klat_benchmark = {
	.name = "eventloop",
	.summary = "bytes passed around watched descriptors by an event loop",
	.description =
		"An event loop watches N pairs of descriptors. The first bytes are written to "
		"pairs at equal distances. Each callback reads its byte and writes one to the next "
		"pair, until all bytes are written and read. A sample is one such round. Its "
		"registration, loop and teardown are timed separately. total is registration and "
		"loop, as in the published figures.\n\n"
		"All backends make the same reads and writes. --backend none makes them without "
		"asking which descriptor is readable, so the difference from it is the cost of an "
		"event loop. No pass waits for events. libev registers descriptors in its first "
		"pass, so the registration of every backend ends with a pass without events. libev "
		"keeps registrations between rounds unless --fresh is given.\n\n"
		"Timers are set to 10 to 11 seconds and do not expire. Random numbers are drawn "
		"before each round; they are the same for every backend and run. klat checks every "
		"byte, and the count of each pair against the plan. The run is skipped if the "
		"backend's library was missing when klat was built, or if the backend does not "
		"support the options.",
	.examples =
		"eventloop\tepoll, the published workload: 1,000 pairs, 200 bytes, 10,000 writes\n"
		"eventloop --backend libev --timers\tlibev, with a timer for each pair\n"
		"eventloop --backend io_uring-read --count-syscalls\tcounts the system calls of a "
		"round",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	KLAT_WORKERS(workers),
	KLAT_STATE(struct state),
	.iterations = 20,
	.warmup = 4,
	.faults = { "lost", "stray" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};
