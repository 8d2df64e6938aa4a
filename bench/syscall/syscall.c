/* SPDX-License-Identifier: MIT */
/*
 * One system call: the way into the kernel and back, and what the call does. Or the function of the
 * vDSO in its place.
 *
 * Timed: one call between two stamps. With --batch N: N calls and 2N calls, in a random order.
 * Not timed: libc, because the program makes the system call itself.
 *
 * Traps:
 * - libc answers clock_gettime() without the kernel, and close() is a cancellation point.
 * - A call that fails is faster than one that works. So every result is checked.
 * - A result can be right without the kernel. So the same code runs under a filter: control.c.
 */
#include "syscall.h"

#define MAX_BATCH 10000
#define DEFAULT_BYTES 30 /* as published */
#define DEFAULT_DESCRIPTORS 10

enum { CALL, CALLS_N, CALLS_2N };
struct options options = { .bytes = DEFAULT_BYTES, .descriptors = DEFAULT_DESCRIPTORS };

struct state {
	struct call call;
	struct objects objects;
	int number;             /* of the call; the fault "refused" does not change it */
	int64_t wrong;          /* calls with another result than expected, warm-up included */
	int64_t n_first;        /* samples of n calls that were taken before those of 2n */
	int64_t count_at_begin; /* the kernel's count of reads or writes before the observed part */
	int64_t counted;        /* its count of those in the observed part; -1: it does not count */
	int64_t intercepted;    /* calls that the filter refused */
	bool effective;         /* the calls had their effects */
};

static const struct klat_option option_table[] = {
	{ "call",
	  "the system call; close-bad closes an invalid descriptor; stat and open-close use "
	  "/dev/null; read-file and write-file, a file in memory; open-close, send-recv and "
	  "mmap-munmap make two calls; -vdso: the function that the kernel maps into each process",
	  KLAT_CHOICE_OF(call, call_names) },
	{ "batch",
	  "time N calls and 2N calls; the difference is the time of N. With 1, a sample is one "
	  "call and includes the timer floor. Default: 1, or 100 if the counter's step is longer "
	  "than 12.5 ns",
	  KLAT_INTEGER(batch, 1, MAX_BATCH) },
	{ "bytes", "bytes that the call moves, maps or draws", KLAT_INTEGER(bytes, 1, MAX_BYTES) },
	{ "descriptors", "descriptors of select, poll and epoll_wait, all of them ready",
	  KLAT_INTEGER(descriptors, 1, MAX_DESCRIPTORS) },
	{ "caller",
	  "process: with one thread, so the kernel need not count references to its files",
	  KLAT_CHOICE(process, "thread", "process") },
};

static const struct klat_metric metrics[] = {
	[CALL] = { "call", "one call, on one CPU", .path_length = true,
		   KLAT_WITHIN("call_singly", "caller") },
	[CALLS_N] = { "calls_n", "--batch N calls, on one CPU", .path_length = true,
		      KLAT_WITHIN("call_in_batches", "caller") },
	[CALLS_2N] = { "calls_2n", "2N calls", .path_length = true,
		       KLAT_WITHIN("call_in_batches", "caller") },
};

static const char in_linux[] =
	"Go's os.File.Write in a Linux guest, mean of 400,000,000; Jiny's notes",
		  in_ring_0[] =
			  "the same with the program in ring 0 of the Jiny kernel: a function call",
		  write_30[] = "call=write-null;bytes=30";

/* Beside a single call and beside --batch. */
static const struct klat_published published[] = {
	{ "call", write_30, 520, "ns", in_linux },
	{ "call_ticks", write_30, 520, "ns", in_linux },
	{ "call", write_30, 55, "ns", in_ring_0 },
	{ "call_ticks", write_30, 55, "ns", in_ring_0 },
};

static int configure(struct klat_run *run)
{
	if (!options.batch)
		options.batch = klat_counter_is_coarse() ? 100 : 1;
	if (options.bytes != DEFAULT_BYTES && !call_has_bytes(options.call))
		return klat_usage(run, "--call %s takes no --bytes", call_names[options.call]);
	if (options.descriptors != DEFAULT_DESCRIPTORS && !call_has_descriptors(options.call))
		return klat_usage(run, "--call %s takes no --descriptors",
				  call_names[options.call]);
	klat_use_metric(run, options.batch == 1 ? CALL : CALLS_N, 1);
	if (options.batch > 1)
		klat_use_metric(run, CALLS_2N, 1);
	return 0;
}

/*
 * Make `count` calls. Returns how many had another result than expected. The program must not have
 * two copies of this code: its address changes the time of a call by some nanoseconds, and then
 * the difference between N and 2N calls is wrong.
 */
static inline __attribute__((always_inline)) int64_t loop(const struct call *call, int64_t count,
							  enum way way)
{
	const struct request first = call->requests[0], second = call->requests[1];
	const vdso_function function = call->function;
	int64_t wrong = 0;

	if (call->count == 1)
		for (int64_t i = 0; i < count; i++)
			wrong += request(&first, way, function) != first.expected;
	else
		for (int64_t i = 0; i < count; i++) {
			wrong += request(&first, way, function) != first.expected;
			wrong += request(&second, way, function) != second.expected;
		}
	return wrong;
}

#define REPEAT(name, way)                                                                          \
	static __attribute__((noinline, aligned(64))) int64_t name(const struct call *call,        \
								   int64_t count)                  \
	{                                                                                          \
		return loop(call, count, way);                                                     \
	}
REPEAT(repeat_four, BY_FOUR)
REPEAT(repeat_six, BY_SIX)
REPEAT(repeat_function, BY_FUNCTION)
REPEAT(repeat_cached, CACHED)

/* Where the observed part begins, after the library has read its files. A traced run is not
 * counted: the copy of a trace also calls read() and write(). */
static void begin_to_count(const struct klat_worker *worker)
{
	struct state *state = worker->state;

	state->count_at_begin = worker->watched ? -1 : call_count_by_kernel();
}

static inline __attribute__((always_inline)) void call_singly(struct klat_worker *worker,
							      enum way way)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	const struct call *call = &state->call;
	const vdso_function function = call->function;
	uint64_t *samples = klat_series(run, CALL, 0);
	bool pair = call->count == 2;

	for (int64_t i = klat_first(run); klat_next(worker, &i); i++) {
		uint64_t begin;
		long first, second = 0;

		if (__builtin_expect(klat_observed_from(worker, i), 0))
			begin_to_count(worker);
		begin = klat_stamp_begin();
		klat_inject(run, i);
		first = request(&call->requests[0], way, function);
		if (pair)
			second = request(&call->requests[1], way, function);
		samples[i] = klat_stamp_end(worker) - begin;
		state->wrong += first != call->requests[0].expected;
		state->wrong += pair && second != call->requests[1].expected;
	}
}

static void call_in_batches(struct klat_worker *worker,
			    int64_t (*repeat)(const struct call *, int64_t))
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	uint64_t *series[] = { klat_series(run, CALLS_N, 0), klat_series(run, CALLS_2N, 0) };
	uint64_t seed = klat_seed(run);

	for (int64_t i = klat_first(run); klat_next(worker, &i); i++) {
		bool first = klat_draw(&seed) & 1;
		uint64_t ends[2];

		if (__builtin_expect(klat_observed_from(worker, i), 0))
			begin_to_count(worker);
		state->n_first += klat_is_sample(run, i) && !first;
		for (int turn = 0; turn < 2; turn++) {
			/* Before the stamp: the order must not change the timed code. */
			const bool twice = turn ? !first : first;
			const int64_t count = twice ? 2 * options.batch : options.batch;
			const uint64_t spin = twice && __builtin_parityll(i) ? run->inject : 0;
			uint64_t begin = klat_stamp_begin();

			if (__builtin_expect(spin != 0, 0))
				klat_spin(spin);
			state->wrong += repeat(&state->call, count);
			ends[twice] = klat_stamp_end(worker);
			series[twice][i] = ends[twice] - begin;
		}
		for (int twice = 0; twice < 2; twice++)
			klat_sample_ended(worker, series[twice], ends[twice]);
	}
}

static void call_all(struct klat_worker *worker, enum way way)
{
	static int64_t (*const repeats[])(const struct call *, int64_t) = {
		[BY_FOUR] = repeat_four,
		[BY_SIX] = repeat_six,
		[BY_FUNCTION] = repeat_function,
		[CACHED] = repeat_cached,
	};

	if (options.batch > 1)
		call_in_batches(worker, repeats[way]);
	else if (way == BY_FOUR)
		call_singly(worker, BY_FOUR);
	else if (way == BY_SIX)
		call_singly(worker, BY_SIX);
	else if (way == BY_FUNCTION)
		call_singly(worker, BY_FUNCTION);
	else
		call_singly(worker, CACHED);
}

static int caller(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct call *call = &state->call;
	int err = call_describe(worker, &state->objects, call);
	int64_t after;

	if (err)
		return err;
	state->number = call->requests[0].number;
	if (klat_planted(run, "cached"))
		call->way = CACHED;
	/* No system call has this number. In place of a function: its system call. */
	if (klat_planted(run, "refused") && call->way == BY_FUNCTION)
		call->way = BY_FOUR;
	else if (klat_planted(run, "refused"))
		call->requests[0].number = 0xfff;
	call_prepare(&state->objects);
	call_all(worker, call->way);
	/* Each reading of the kernel's count is itself a read(). The second count includes the
	 * first reading. */
	after = state->count_at_begin < 0 ? -1 : call_count_by_kernel();
	state->counted = after < 0 ? -1 : after - state->count_at_begin - call_reads();
	state->effective = call_took_effect(worker, &state->objects);
	return 0;
}

static int setup(struct klat_run *run)
{
	struct state *state = run->state;
	int err = objects_open(run, &state->objects);

	run->workers->process = options.process;
	return err;
}

static const struct klat_worker workers[] = {
	{ "caller", .body = caller, .spins = KLAT_ALWAYS, .sleeps = KLAT_NEVER },
};

/* Signed: an interruption of the N calls can be longer than N calls. */
static void count_difference(struct klat_run *run)
{
	const struct state *state = run->state;
	const uint64_t *once = klat_series(run, CALLS_N, 0), *twice = klat_series(run, CALLS_2N, 0);
	int64_t difference = 0;

	for (int64_t i = 0; i < run->iterations; i++)
		difference += (int64_t)(twice[i] - once[i]);
	klat_count(run, "n_first", state->n_first);
	klat_count_mean(run, "difference_ticks", difference, run->iterations);
	klat_count_mean(run, "call_ticks", difference, run->iterations * options.batch);
}

static void verify(struct klat_run *run)
{
	const struct klat_worker *worker = klat_worker_find(run, "caller", 0);
	struct state *state = run->state;
	const int64_t repeats = options.batch > 1 ? 3 * options.batch : 1,
		      calls = repeats * state->call.count, made = klat_made(run) * calls,
		      intercepted = control(run, &state->call, state->number, &state->intercepted),
		      entries = call_enters(options.call) ? CONTROL_CALLS * state->call.count : 0;

	klat_require(run, { "calls", .got = made },
		     { "wrong", state->wrong, KLAT_NEVER, made,
		       .reason = "{got} of {wanted} calls had another result than expected" },
		     { NULL, state->effective, KLAT_EXACTLY, 1, "the calls had no effect",
		       .unless = state->wrong },
		     { "counted", state->counted, KLAT_EXACTLY, klat_observed(run) * calls,
		       "the kernel counted {got} calls instead of {wanted}",
		       .unless = state->counted < 0 },
		     { "intercepted", intercepted, KLAT_EXACTLY, entries,
		       "{got} calls reached the kernel in the control instead of {wanted}",
		       .unless = intercepted < 0 },
		     { NULL, worker->involuntary, KLAT_RARELY, klat_observed(run),
		       "another thread had the CPU in some yields", .disturbs = true,
		       .unless = options.call != SCHED_YIELD });
	if (options.batch > 1)
		count_difference(run);
}

const struct klat_benchmark klat_benchmark = {
	.name = "syscall",
	.summary = "one system call, or the function of the vDSO in its place",
	.description =
		"Times one system call on one CPU, without libc, from before the instruction to "
		"after it: the way into the kernel and out again, and what the call "
		"does.\n\n"
		"With --batch N, each iteration times a loop of N calls and one of 2N, in random "
		"order. difference_ticks in the evidence is the mean of 2N calls minus that of N: "
		"the two stamps and the set-up of the loop cancel. call_ticks is difference_ticks "
		"divided by N. Both can be negative. The three or four instructions of the loop "
		"for each call do not cancel; the CPU runs them in parallel with the call.\n\n"
		"The calls that end in -vdso are functions that the kernel maps into every "
		"process. They answer without the kernel.\n\n"
		"Evidence: the result of every call, the effect of the last, the kernel's own "
		"count of "
		"reads and writes, and the same code in another process under a seccomp filter "
		"that refuses the call: it refuses all of them, and none of a function in the "
		"vDSO.",
	.examples =
		"syscall\tgetppid, one call a sample\n"
		"syscall --batch 1000\tthe mean of a thousand calls, without the floor\n"
		"syscall --call write-null --batch 1000 --published\tbeside the published figure\n"
		"syscall --call close-bad --caller process\tas lmbench and perf bench do\n"
		"syscall --call poll --descriptors 500\tthe kernel looks at 500 descriptors",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	KLAT_WORKERS(workers),
	KLAT_STATE(struct state),
	.faults = { "cached", "refused" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};
