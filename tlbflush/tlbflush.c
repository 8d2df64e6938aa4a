/* SPDX-License-Identifier: MIT */
/*
 * An initiator removes pages that responders on other CPUs have in their TLBs.
 *
 * Timed: the system call on the initiator's CPU, and on each responder the gap that it causes.
 * Not timed: mapping and touching the pages.
 *
 * Traps:
 * - The kernel interrupts only CPUs that run a thread of the address space at that moment (except
 *   to free page tables). So responders spin in user mode. Where a flush is an interrupt,
 *   /proc/interrupts must show one for each responder and iteration: delivery.c. A flush without an
 *   interrupt must be proved: proof.c.
 * - New pages have the address of the old ones. So a generation announces them to the responders.
 * - In an emulator the host also makes gaps. There a responder on x86-64 uses a mark that only an
 *   interrupt clears.
 *
 * Several initiators are another measurement: contention.c.
 */
#include "tlbflush.h"

#include "pause.h"
#include "sync/sync.h"

#include <linux/membarrier.h>
#include <string.h>
#include <sys/param.h>
#include <sys/prctl.h>

/* The initiator waits this long. Responders need about 10 ns to start watching. */
#define SETTLE_NS 1000
/* A responder saw an interruption if its gap is at least this many empty brackets. */
#define LEAST_GAP 10

struct options options = { .responders = -1, .pages = 1 };

static const struct klat_option option_table[] = {
	{ "responders", "CPUs besides the initiator's; default: all other CPUs",
	  KLAT_INTEGER(responders, 0, MAX_RESPONDERS) },
	{ "initiators",
	  "threads that unmap pages of their own at once, without responders; default: one thread, "
	  "with responders",
	  KLAT_INTEGER(initiators, 1, MAX_RESPONDERS + 1) },
	{ "pages", "pages in each operation; above 33 the kernel flushes whole TLBs",
	  KLAT_INTEGER(pages, 1, 65536) },
	{ "operation",
	  "munmap removes the pages; mprotect makes them read-only, with the least work besides "
	  "the flush; madvise gives them back (MADV_DONTNEED); membarrier flushes nothing: it only "
	  "interrupts the responders",
	  KLAT_CHOICE(operation, "munmap", "mprotect", "madvise", "membarrier") },
	{ "responder-state",
	  "sleeping: the responders sleep and get no interrupt. The evidence then refutes a run "
	  "that needs interrupts: the negative control",
	  KLAT_CHOICE(sleeping, "running", "sleeping") },
	{ "page-table", "freed: no other mapping is near, so munmap frees the page table too",
	  KLAT_CHOICE(freed, "kept", "freed") },
};

static const struct klat_metric metrics[] = {
	[INITIATOR] = { "initiator", "the system call, on the CPU that makes it",
			.path_length = true, KLAT_WITHIN("initiator", "initiator") },
	[INTERRUPTION] = { "interruption",
			   "longest gap between two counter readings of a responder",
			   .path_length = false, .taken_by = "responder",
			   .untraceable = "klat keeps the length of a gap, not its end; explain "
					  "initiator" },
	[TOGETHER] = { "together", "with --initiators: begin of the first call to end of the last",
		       .path_length = false,
		       .untraceable = "it ends on any of the CPUs; explain initiator" },
};

static const struct klat_published published[] = {
	{ "initiator", "responders=1;operation=munmap", 69907.3, "cycles",
	  "2 CPUs, munmap, mean of 500 runs, sd 12548.6; Linux, 2013, responders asleep" },
};

static int configure_contention(struct klat_run *run)
{
	if (options.responders > 0 || options.sleeping)
		return klat_usage(run, "--initiators excludes --responders and --responder-state");
	options.responders = 0;
	run->cpu_count = options.initiators;
	klat_use_metric(run, INITIATOR, options.initiators);
	/* An offset between two counters can change in hours. */
	if (run->soak)
		return 0;
	klat_use_metric(run, TOGETHER, 1);
	klat_bound_offset(run, TOGETHER);
	return 0;
}

static int configure_responders(struct klat_run *run)
{
	if (run->cpus_given && options.responders < 0)
		options.responders = run->cpu_count - 1;
	if (options.responders < 0) {
		int available = klat_available_cpus();

		if (available < 0)
			return klat_usage(run, "cannot count the CPUs (%s): give --responders",
					  strerror(-available));
		/* A machine of one CPU has no shootdowns: measure the teardown of page tables. If
		 * only one CPU of several may be used, the run is skipped. */
		options.responders = available > 1 ? available - 1 : !run->one_cpu;
	}
	if (options.responders > MAX_RESPONDERS)
		return klat_usage(run, "at most %d CPUs can be responders: give --responders",
				  MAX_RESPONDERS);
	if (options.sleeping && options.responders == 0)
		return klat_usage(run, "--responder-state sleeping needs a responder");
	run->cpu_count = options.responders + 1;
	klat_use_metric(run, INITIATOR, 1);
	if (!options.sleeping)
		klat_use_metric(run, INTERRUPTION, options.responders);
	klat_cannot_trace(run, INTERRUPTION);
	return 0;
}

static int configure(struct klat_run *run)
{
	run->distinct_cpus = true;
	if (options.operation == MEMBARRIER && options.pages != 1)
		return klat_usage(run, "--operation membarrier takes no --pages");
	if (options.operation == MEMBARRIER && options.initiators)
		return klat_usage(run, "--operation membarrier takes no --initiators");
	if (options.freed && options.operation != MUNMAP)
		return klat_usage(run, "--page-table freed needs --operation munmap");
	/* More pages would fill a whole page table, which munmap then frees. */
	if (!options.freed && options.operation == MUNMAP && options.pages > 1022)
		return klat_usage(run, "--pages above 1022 need --page-table freed");
	/* The fault "apart" makes several initiators take turns. */
	if (klat_planted(run, "apart") && !options.initiators)
		options.initiators = 2;
	return options.initiators ? configure_contention(run) : configure_responders(run);
}

static bool responders_sleep(const struct klat_run *run)
{
	return options.sleeping || klat_planted(run, "sleep");
}

static int initiator(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	uint64_t *samples = klat_series(run, INITIATOR, 0);
	const struct klat_pause settle = klat_pause_prepare(run, SETTLE_NS, 0);
	uint64_t seed = klat_seed(run);
	bool sleeping = responders_sleep(run), stale = klat_planted(run, "stale");
	char *pages;
	int err = make_pages(&pages);

	if (!err && state->proves)
		err = settle_delivery(worker, pages);
	state->pages = pages;
	for (int64_t i = klat_first(run); !err && klat_next(worker, &i); i++) {
		const uint32_t generation = state->mapped + 1;
		uint64_t begin;

		touch_first(worker, i, pages);
		__atomic_store_n(&state->mapped, generation, __ATOMIC_RELEASE);
		err = klat_spin_until(worker, &state->arrived, options.responders * generation);
		if (err)
			break;
		/* Responders need more time to fall asleep. */
		if (sleeping)
			klat_sleep(worker, 100000);
		else
			klat_pause(&settle, &seed);
		begin = klat_stamp_begin();
		klat_inject(run, i);
		err = operate(pages);
		samples[i] = klat_stamp_end(worker) - begin;
		/* restore() may flush, too. Sleepers must still sleep then, and watchers must not
		 * count it as a gap. */
		if (sleeping && !err)
			err = restore(pages);
		__atomic_store_n(&state->finished, generation, __ATOMIC_RELEASE);
		if (sleeping)
			sync_futex(&state->finished, FUTEX_WAKE_PRIVATE, INT32_MAX);
		else if (!err)
			err = await_proofs(worker, generation, stale) ?: restore(pages);
	}
	return err;
}

static bool is_finished(struct state *state, uint32_t generation)
{
	return (int32_t)(__atomic_load_n(&state->finished, __ATOMIC_ACQUIRE) - generation) >= 0;
}

/* The longest gap between two counter readings until the operation is over. One more reading
 * catches a gap that ends with the operation. */
static uint64_t watch(struct klat_worker *worker, struct state *state, uint32_t generation)
{
	uint64_t last = klat_stamp_end(worker), longest = 0;
	bool finished;

	do {
		uint64_t now;

		finished = is_finished(state, generation);
		now = klat_stamp_end(worker);
		if (now - last > longest)
			longest = now - last;
		last = now;
	} while (!finished);
	return longest;
}

static int responder(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	uint64_t *interruption = klat_series(run, INTERRUPTION, worker->index);
	const bool marks = !klat_timed(), sleeps = responders_sleep(run);
	/* With a coarse counter the floor can be 0, and a gap of one step can be no time. */
	const uint64_t of_floor = LEAST_GAP * worker->floor, steps = 2 * klat_counter_quantum(),
		       least_gap = of_floor > steps ? of_floor : steps;
	int64_t *interrupted = &state->responders[worker->index].interrupted,
		*slept = &state->responders[worker->index].slept;
	uint32_t generation = 1;
	int err = 0;

	for (int64_t i = klat_first(run); !err && klat_next(worker, &i); i++, generation++) {
		int64_t sleeps_before;
		bool seen = false;

		if (klat_observed_from(worker, i))
			*slept = 0;
		err = klat_spin_until(worker, &state->mapped, generation);
		if (err)
			break;
		touch_pages(state->pages);
		sleeps_before = klat_thread_usage().ru_nvcsw;
		if (marks && !sleeps)
			klat_arch_mark();
		__atomic_fetch_add(&state->arrived, 1, __ATOMIC_ACQ_REL);
		if (sleeps) {
			while (!is_finished(state, generation))
				sync_futex(&state->finished, FUTEX_WAIT_PRIVATE, generation - 1);
		} else if (marks) {
			/* For emulators: do not read the counter while waiting. A reading takes a
			 * lock that all CPUs share, and the host may have stopped its holder. */
			while (!is_finished(state, generation))
				;
			klat_stamp_end(worker); /* checks the CPU */
			seen = klat_arch_mark_lost();
		} else {
			interruption[i] = watch(worker, state, generation);
			seen = interruption[i] >= least_gap;
		}
		*interrupted += seen && klat_is_sample(run, i);
		*slept += klat_thread_usage().ru_nvcsw != sleeps_before;
		err = err ?: prove(worker, generation, sleeps_before);
	}
	return err;
}

static int setup(struct klat_run *run)
{
	int err;

	if (sysconf(_SC_PAGESIZE) != PAGE && options.operation != MEMBARRIER)
		return klat_skip(run, "this kernel's pages have %ld bytes; tlbflush needs %ld",
				 sysconf(_SC_PAGESIZE), PAGE);
	if (options.operation == MEMBARRIER &&
	    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0))
		return klat_skip(run, "this kernel has no private expedited membarrier()");
	/* A huge page has no page table. */
	if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
		return klat_error(run, errno, "cannot disable transparent huge pages: %m");
	for (int64_t c = 0; c < options.initiators; c++)
		klat_worker_add(run,
				KLAT_WORKER("initiator", .place = c, .body = contender,
					    .spins = KLAT_ALWAYS, .most_sleeps = KLAT_ANY_SLEEPS));
	if (options.initiators)
		return 0;
	if (options.responders && options.operation != MEMBARRIER && !responders_sleep(run) &&
	    (err = prepare_proofs(run)))
		return err;
	klat_worker_add(run, KLAT_WORKER("initiator", .body = initiator, .spins = KLAT_ALWAYS));
	/* Only sleeps during an operation matter: see verify_delivery(). */
	for (int64_t r = 0; r < options.responders; r++)
		klat_worker_add(run,
				KLAT_WORKER("responder", .place = r + 1, .body = responder,
					    .spins = KLAT_ALWAYS,
					    .sleeps = options.sleeping ? KLAT_MOSTLY : KLAT_COUNTED,
					    .most_sleeps = options.sleeping ? 0 : KLAT_ANY_SLEEPS));
	return 0;
}

/* The most shootdowns on other CPUs: fewer than one in `share` iterations, or 10. */
static int64_t most_elsewhere(const struct klat_run *run, int share)
{
	return MAX((klat_made(run) - 1) / share, 10);
}

static void verify(struct klat_run *run)
{
	const int64_t elsewhere = klat_interrupts_elsewhere(run, "TLB");

	/* Function calls on other CPUs have many causes. */
	if (options.operation != MEMBARRIER)
		klat_require(run,
			     { "elsewhere", elsewhere, KLAT_AT_MOST, most_elsewhere(run, 2),
			       .reason = "shootdowns went to CPUs outside the measurement" },
			     { NULL, elsewhere, KLAT_AT_MOST, most_elsewhere(run, 50),
			       "other processes sent shootdowns", .disturbs = true });
	if (options.initiators)
		verify_contention(run);
	else if (options.responders)
		verify_delivery(run, klat_made(run) * flushes_of());
}

const struct klat_benchmark klat_benchmark = {
	.name = "tlbflush",
	.summary = "TLB shootdown of other CPUs by munmap, or a bare interrupt of them",
	.description =
		"An initiator maps pages. Responders on other CPUs write to them and then spin in "
		"user mode. The initiator unmaps the pages: the kernel interrupts every responder "
		"and waits for all of them. The samples are the time of the system call and, on "
		"each responder, the longest gap between two readings of its counter.\n\n"
		"--responders 0 times the same call without a shootdown. T(k) - T(0) is the cost "
		"of k responders. Each count needs a process of its own, because the kernel "
		"remembers the CPUs on which an address space has run. klat run tlbflush --sweep "
		"tlbflush.responders=0..3 does that and ends in a table.\n\n"
		"With --initiators N, N threads unmap pages of their own at the same time. They "
		"contend for the lock of the address space and interrupt each other. Each call of "
		"an initiator is a sample. Without any parallelism, together is N times the time "
		"of one call.\n\n"
		"--operation membarrier makes the kernel interrupt every responder to execute a "
		"memory barrier there (private expedited membarrier()), and nothing else: the bare "
		"interrupt, on every architecture.\n\n"
		"On arm64 a shootdown is an instruction that the hardware broadcasts, and on "
		"riscv64 usually a call of firmware. From Linux 6.15 on, an AMD CPU with INVLPGB "
		"broadcasts for a process that is active on four CPUs or more. There the samples "
		"are what the initiator waits and what stalls a responder, and no interrupt is "
		"expected. An interruption of one step of the counter means that no stall was "
		"seen.\n\n"
		"Evidence everywhere: after one operation in 16 each responder accesses the pages "
		"again, outside the stamps, and must fault (proofs). If the TLB was not flushed, "
		"the access succeeds (stale). Evidence where a shootdown is an interrupt: the TLB "
		"row of /proc/interrupts shows one for at least 99 % of the operations on each "
		"responder's CPU (two with mprotect, which also makes the pages writable again), "
		"and almost none on other CPUs. Evidence of membarrier on every architecture: the "
		"row of function calls, in the same way. Sleeping responders prove nothing, so "
		"their run needs interrupts, except on arm64 and riscv64. With several initiators, "
		"each operation overlaps with another initiator's.",
	.examples = "tlbflush\tone page, all other CPUs are responders\n"
		    "tlbflush --responders 0\tthe same without a shootdown\n"
		    "tlbflush --operation mprotect --pages 34\ta flush of whole TLBs, without "
		    "freeing memory\n"
		    "tlbflush --initiators 2\ttwo threads that unmap at once\n"
		    "tlbflush --operation membarrier\tthe interrupt alone\n"
		    "tlbflush --operation membarrier --responder-state sleeping\tthe negative "
		    "control: no interrupt, exit status 3",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	.state_size = sizeof(struct state),
	.soaks = true,
	.counts_at = offsetof(struct state, responders),
	.counts_size = sizeof(struct state) - offsetof(struct state, responders),
	.faults = { "sleep", "apart", "stale" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};
