/* SPDX-License-Identifier: MIT */
/*
 * One system call that does next to nothing: the way into the kernel and back.
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

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define MAX_BATCH 10000
#define MAX_BYTES 65536
#define DEFAULT_BYTES 30 /* as published */

enum { CALL, CALLS_N, CALLS_2N };
enum {
	GETPPID,
	GETTID,
	SCHED_YIELD,
	CLOSE_BAD,
	WRITE_NULL,
	READ_ZERO,
	FUTEX_WAKE_NONE,
	CLOCK_GETTIME,
	STAT,
	OPEN_CLOSE
};

static struct options {
	int64_t batch, bytes;
	int call, process;
} options = { .bytes = DEFAULT_BYTES };

struct state {
	struct call call;
	int null, zero;
	int number; /* of the call; the fault "refused" does not change it */
	char bytes[MAX_BYTES] KLAT_ALIGNED;
	struct timespec time;
	struct stat status;
	uint32_t futex;
	int64_t wrong;       /* calls with another result than expected, warm-up included */
	int64_t n_first;     /* samples of n calls that were taken before those of 2n */
	int64_t counted;     /* reads or writes that the kernel counted; -1: it does not count */
	int64_t intercepted; /* calls that the filter refused */
	bool effective;      /* the calls had their effects */
};

static const struct klat_option option_table[] = {
	{ "call",
	  "the system call; close-bad closes an invalid descriptor; stat and open-close (two "
	  "calls) use /dev/null",
	  KLAT_CHOICE(call, "getppid", "gettid", "sched_yield", "close-bad", "write-null",
		      "read-zero", "futex-wake-none", "clock_gettime-syscall", "stat",
		      "open-close") },
	{ "batch",
	  "time N calls and 2N calls; the difference is the time of N. With 1, a sample is one "
	  "call and includes the timer floor. Default: 1, or 100 if the counter's step is longer "
	  "than 12.5 ns",
	  KLAT_INTEGER(batch, 1, MAX_BATCH) },
	{ "bytes", "bytes that write-null writes and read-zero reads",
	  KLAT_INTEGER(bytes, 1, MAX_BYTES) },
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
	if (options.bytes != DEFAULT_BYTES && options.call != WRITE_NULL &&
	    options.call != READ_ZERO)
		return klat_usage(run, "--bytes needs --call write-null or read-zero");
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
							  bool cached)
{
	const struct request first = call->requests[0], second = call->requests[1];
	int64_t wrong = 0;

	if (call->count == 1)
		for (int64_t i = 0; i < count; i++)
			wrong += request(&first, cached) != first.expected;
	else
		for (int64_t i = 0; i < count; i++) {
			wrong += request(&first, cached) != first.expected;
			wrong += request(&second, cached) != second.expected;
		}
	return wrong;
}

static __attribute__((noinline, aligned(64))) int64_t repeat(const struct call *call, int64_t count)
{
	return loop(call, count, false);
}

static __attribute__((noinline)) int64_t repeat_cached(const struct call *call, int64_t count)
{
	return loop(call, count, true);
}

static inline __attribute__((always_inline)) void call_singly(struct klat_worker *worker,
							      bool cached)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	const struct call *call = &state->call;
	uint64_t *samples = klat_series(run, CALL, 0);
	bool pair = call->count == 2;

	for (int64_t i = klat_first(run); klat_next(worker, &i); i++) {
		const uint64_t begin = klat_stamp_begin();
		long first, second = 0;

		klat_inject(run, i);
		first = request(&call->requests[0], cached);
		if (pair)
			second = request(&call->requests[1], cached);
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

/* In the worker: its parent and its id depend on --caller. */
static int describe_call(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct call *call = &state->call;
	const long bytes = (long)state->bytes, path = (long)"/dev/null",
		   futex = (long)&state->futex;
	const struct request described[] = {
		[GETPPID] = { SYS_getppid, { 0 }, getppid() },
		[GETTID] = { SYS_gettid, { 0 }, worker->tid },
		[SCHED_YIELD] = { SYS_sched_yield, { 0 }, 0 },
		[CLOSE_BAD] = { SYS_close, { -1 }, -EBADF },
		[WRITE_NULL] = { SYS_write, { state->null, bytes, options.bytes }, options.bytes },
		[READ_ZERO] = { SYS_read, { state->zero, bytes, options.bytes }, options.bytes },
		[FUTEX_WAKE_NONE] = { SYS_futex, { futex, FUTEX_WAKE_PRIVATE, 1 }, 0 },
		[CLOCK_GETTIME] = { SYS_clock_gettime, { CLOCK_MONOTONIC, (long)&state->time }, 0 },
#ifdef SYS_stat
		[STAT] = { SYS_stat, { path, (long)&state->status }, 0 },
		[OPEN_CLOSE] = { SYS_open, { path, O_RDONLY }, 0 },
#else
		/* Newer kernel ABIs have only the calls that take a directory. */
		[STAT] = { SYS_newfstatat, { AT_FDCWD, path, (long)&state->status }, 0 },
		[OPEN_CLOSE] = { SYS_openat, { AT_FDCWD, path, O_RDONLY }, 0 },
#endif
	};

	call->requests[0] = described[options.call];
	state->number = call->requests[0].number;
	call->count = 1;
	if (options.call == OPEN_CLOSE) {
		/* open() returns the lowest free number. Nothing else here opens a file. */
		int fd = open("/dev/null", O_RDONLY);

		if (fd < 0)
			return klat_error(worker->run, errno, "cannot open /dev/null: %m");
		close(fd);
		call->requests[0].expected = fd;
		call->requests[1] = (struct request){ SYS_close, { fd }, 0 };
		call->count = 2;
	}
	/* No system call has this number. */
	if (klat_planted(run, "refused"))
		call->requests[0].number = 0xfff;
	return 0;
}

/* This thread's reads or writes, by /proc/thread-self/io. -1 if the kernel does not count them, or
 * if the calls are neither. */
static int64_t count_by_kernel(void)
{
	if (options.call != READ_ZERO && options.call != WRITE_NULL)
		return -1;
	return klat_count_in("/proc/thread-self/io", options.call == READ_ZERO ? "syscr" : "syscw");
}

/* Whether the calls had their effects. Before the first call, these were not there. */
static bool took_effect(const struct state *state)
{
	struct timespec now;

	if (options.call == READ_ZERO)
		return !state->bytes[0] &&
		       !memcmp(state->bytes, state->bytes + 1, options.bytes - 1);
	if (options.call == STAT)
		return S_ISCHR(state->status.st_mode) && state->status.st_rdev == makedev(1, 3);
	if (options.call != CLOCK_GETTIME)
		return true;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return state->time.tv_sec && now.tv_sec - state->time.tv_sec <= 1;
}

static int caller(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	const bool cached = klat_planted(run, "cached");
	int err = describe_call(worker);
	int64_t before, after, own;

	if (err)
		return err;
	memset(state->bytes, -1, sizeof(state->bytes));
	/* In a traced run, the copy of a trace also calls read() and write(). */
	before = worker->watched ? -1 : count_by_kernel();
	if (options.batch > 1)
		call_in_batches(worker, cached ? repeat_cached : repeat);
	else if (cached)
		call_singly(worker, true);
	else
		call_singly(worker, false);
	/* The first reading of the file counts as a read in the second. So does the library's
	 * reading of the thread's times, where the observed part begins. */
	after = before < 0 ? -1 : count_by_kernel();
	own = options.call == READ_ZERO ? 1 + (worker->account.file >= 0) : 0;
	state->counted = after < 0 ? -1 : after - before - own;
	state->effective = took_effect(state);
	return 0;
}

/* A memory device of the kernel. After `rm /dev/null`, a redirection makes a regular file of that
 * name. */
static int open_device(struct klat_run *run, const char *path, int mode, unsigned number)
{
	const int fd = open(path, mode);
	struct stat status;

	if (fd < 0)
		return klat_error(run, errno, "cannot open %s: %m", path);
	if (fstat(fd, &status) || !S_ISCHR(status.st_mode) || status.st_rdev != makedev(1, number))
		return klat_error(
			run, ENODEV,
			"%s is not the kernel's device: make it again by mknod -m 666 %s c 1 %u",
			path, path, number);
	return fd;
}

static int setup(struct klat_run *run)
{
	struct state *state = run->state;

	state->null = open_device(run, "/dev/null", O_WRONLY, 3);
	if (state->null < 0)
		return state->null;
	state->zero = open_device(run, "/dev/zero", O_RDONLY, 5);
	if (state->zero < 0)
		return state->zero;
	run->workers->process = options.process;
	return 0;
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
		      made = klat_made(run) * repeats * state->call.count,
		      intercepted = control(&state->call, state->number,
					    klat_planted(run, "cached"), &state->intercepted);

	klat_require(run, { "calls", .got = made },
		     { "wrong", state->wrong, KLAT_NEVER, made,
		       .reason = "{got} of {wanted} calls had another result than expected" },
		     { NULL, state->effective, KLAT_EXACTLY, 1, "the calls had no effect",
		       .unless = state->wrong },
		     { "counted", state->counted, KLAT_EXACTLY, made,
		       "the kernel counted {got} calls instead of {wanted}",
		       .unless = state->counted < 0 },
		     { "intercepted", intercepted, KLAT_EXACTLY, CONTROL_CALLS * state->call.count,
		       "only {got} of {wanted} calls reached the kernel in the control",
		       .unless = intercepted < 0 },
		     { NULL, worker->involuntary, KLAT_RARELY, klat_observed(run),
		       "another thread had the CPU in some yields", .disturbs = true,
		       .unless = options.call != SCHED_YIELD });
	if (options.batch > 1)
		count_difference(run);
}

const struct klat_benchmark klat_benchmark = {
	.name = "syscall",
	.summary = "a system call that does next to nothing",
	.description =
		"Times one system call on one CPU, without libc, from before the instruction to "
		"after it: the way into the kernel and out again, and the little that the call "
		"does.\n\n"
		"With --batch N, each iteration times a loop of N calls and one of 2N, in random "
		"order. difference_ticks in the evidence is the mean of 2N calls minus that of N: "
		"the two stamps and the set-up of the loop cancel. call_ticks is difference_ticks "
		"divided by N. Both can be negative. The three or four instructions of the loop "
		"for each call do not cancel; the CPU runs them in parallel with the call.\n\n"
		"Evidence: the result and the effect of every call, the kernel's own count of "
		"reads and writes, and the same code in another process under a seccomp filter "
		"that refuses the call.",
	.examples =
		"syscall\tgetppid, one call a sample\n"
		"syscall --batch 1000\tthe mean of a thousand calls, without the floor\n"
		"syscall --call write-null --batch 1000 --published\tbeside the published figure\n"
		"syscall --call close-bad --caller process\tas lmbench and perf bench do",
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
