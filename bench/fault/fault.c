/* SPDX-License-Identifier: MIT */
/*
 * One minor page fault: a thread touches a page that is not mapped, or not writable.
 *
 * Timed: the instruction that touches the page.
 * Not timed: what makes the pages fault again, after each 124 faults (4 with huge pages).
 *
 * Traps:
 * - A read fault of a file maps the pages around it as well, 64 KiB by default (MADV_RANDOM does
 * not change that). So each fault has a window of 64 KiB, which is part of the event.
 * - A kernel can map a huge page in one fault where the program expects many faults. So only --kind
 *   huge allows huge pages, and there the last page of each must not fault.
 * - Locked memory does not fault. So a thread maps its memory after the library has locked the
 * rest.
 * - Some kernels count a fault as major if the thread slept for userfaultfd in it.
 * - Page tables, and neighbours that become one mapping: memory.c.
 */
#include "fault.h"

#include <sys/param.h>
#include <unistd.h>

struct options options = { .threads = 1 };

static const struct klat_option option_table[] = {
	{ "kind",
	  "anonymous: a new page of zeros; file: a page in the page cache; shared: a new page of "
	  "shared memory; copy-on-write: the copy of a page that is written; huge: a new huge "
	  "page; userfaultfd: another thread supplies the page",
	  KLAT_CHOICE(kind, "anonymous", "file", "shared", "copy-on-write", "huge",
		      "userfaultfd") },
	{ "page-order", "order of the touched pages", KLAT_CHOICE(random, "sequential", "random") },
	{ "threads", "threads that fault at once, each on its CPU and in memory of its own",
	  KLAT_INTEGER(threads, 1, MAX_THREADS) },
	{ "mapper", "one more thread on its CPU maps and unmaps memory all the time",
	  KLAT_FLAG(mapper) },
};

static const struct klat_metric metrics[] = {
	[FAULT] = { "fault", "the instruction that touches the page", .path_length = true,
		    KLAT_WITHIN("touch_pages", "toucher") },
};

static int configure(struct klat_run *run)
{
	if (klat_planted(run, "small") && options.kind != CACHED)
		options.kind = HUGE;
	if (options.kind == USERFAULTFD && options.threads > 1)
		return klat_usage(run, "--kind userfaultfd takes no --threads");
	/* Nobody would supply these pages. */
	if (options.kind == USERFAULTFD &&
	    (klat_planted(run, "extra") || klat_planted(run, "present")))
		return klat_usage(run, "--kind userfaultfd takes no --plant extra or present");
	run->most_workers = options.threads + (options.kind == USERFAULTFD);
	run->cpu_count = run->most_workers + options.mapper;
	run->distinct_cpus = options.threads > 1 || options.mapper;
	klat_use_metric(run, FAULT, options.threads);
	return 0;
}

static int handler(struct klat_worker *worker)
{
	const size_t page = sysconf(_SC_PAGESIZE);
	struct state *state = worker->state;
	int err = 0;

	for (int64_t i = klat_first(worker->run); !err && klat_next(worker, &i); i++)
		err = uffd_serve(state->uffd, page);
	return err;
}

static int setup(struct klat_run *run)
{
	const bool served = options.kind == USERFAULTFD,
		   waits = options.mapper || options.threads > 1;
	struct state *state = run->state;
	int err = klat_need_memory(run, options.threads * area_bytes(options.kind),
				   options.kind == HUGE);

	if (err)
		return err;
	if (served && (state->uffd = uffd_open(run)) < 0)
		return state->uffd;
	/* Other threads may hold locks of the address space. */
	for (int64_t t = 0; t < options.threads; t++)
		klat_worker_add(run, KLAT_WORKER("toucher", .place = t, .body = toucher,
						 .woken = served, .spins = KLAT_ALWAYS,
						 .sleeps = served  ? KLAT_MOSTLY
							   : waits ? KLAT_COUNTED
								   : KLAT_RARELY,
						 .most_sleeps = waits ? KLAT_ANY_SLEEPS : 0));
	if (served)
		klat_worker_add(run, KLAT_WORKER("handler", .place = 1, .body = handler,
						 .woken = true, .sleeps = KLAT_MOSTLY));
	state->mapper.mapped = &state->mapped;
	return options.mapper ? mapper_start(run, &state->mapper, run->most_workers) : 0;
}

static void teardown(struct klat_run *run)
{
	struct state *state = run->state;

	mapper_end(&state->mapper);
}

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;
	const bool several = options.threads > 1;
	struct counts sum = { 0 };
	int64_t major = 0, met = INT64_MAX;
	bool is_retried;

	for (int64_t t = 0; t < options.threads; t++) {
		klat_add_counts(&sum, &state->counts[t], offsetof(struct counts, met));
		met = MIN(met, state->counts[t].met);
		major += klat_worker_find(run, "toucher", t)->major_faults;
	}
	/* A fault that the kernel begins again counts as major. Before Linux 6.0, it does so for
	 * every page of shared memory, which a fault makes dirty. */
	is_retried = options.kind == USERFAULTFD ||
		     (options.kind == SHARED && major == klat_observed(run) * options.threads);
	klat_require(
		run, { "touches", .got = sum.touches }, { "faults", .got = sum.faults },
		{ NULL, sum.missing, KLAT_NEVER, sum.touches,
		  .reason = "{got} of {wanted} touches caused no page fault" },
		{ NULL, sum.surplus, KLAT_NEVER, sum.touches,
		  .reason = "the kernel counted {got} page faults more than {wanted} touches" },
		{ "major", major, is_retried ? KLAT_COUNTED : KLAT_NEVER,
		  .reason = "{got} page faults were major" },
		{ "least_met", met, KLAT_MOSTLY, run->iterations,
		  "faults of two threads overlapped in only {got} of {wanted} iterations",
		  .unless = !several },
		{ "mapped", state->mapped, KLAT_AT_LEAST, klat_observed(run) / 50,
		  "the mapper mapped memory only {got} times", .unless = !options.mapper });
}

const struct klat_benchmark klat_benchmark = {
	.name = "fault",
	.summary = "one minor page fault",
	.description =
		"A pinned thread touches a page. Each sample is this one instruction: the way into "
		"the kernel, the fault, and the way back. The page tables exist before. After each "
		"124 faults klat drops the pages, outside the stamps.\n\n"
		"anonymous, shared and huge allocate and clear a page, or a huge page of usually "
		"2 MiB. file maps pages of a memfd, a file of tmpfs, from the page cache: as with "
		"any file, one read fault maps 16 pages, so there is one touch in each 64 KiB. "
		"copy-on-write writes to a private page of a memfd that was read before; the "
		"kernel copies it as after a fork. With userfaultfd another thread wakes, supplies "
		"the page, and wakes the first one: on two CPUs, or on one with --cpus one.\n\n"
		"With --threads N, N threads fault at the same time in one address space. --mapper "
		"adds a thread that maps and unmaps memory. Before Linux 6.4 each of its calls "
		"blocks every fault (mmap_lock). Since then a fault of anonymous memory takes the "
		"lock of its mapping only (per-VMA locks), and later kernels do so for other "
		"kinds.\n\n"
		"Evidence: the kernel counted exactly one page fault for each touch, none of "
		"them major. The last page of a huge page did not fault, nor did the last of 16 "
		"pages of a file. With userfaultfd both threads slept for each fault, and some "
		"kernels "
		"count it as major. With several threads, each fault overlapped with one of "
		"another thread.",
	.examples = "fault\ta new page of zeros\n"
		    "fault --kind file\ta page in the page cache, and its neighbours\n"
		    "fault --kind huge\ta huge page\n"
		    "fault --mapper\tbeside a thread that maps and unmaps\n"
		    "fault --kind userfaultfd --cpus one\tserved by a thread of the same CPU",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_STATE(struct state),
	.soaks = true,
	.counts_at = offsetof(struct state, counts),
	.counts_size = sizeof(struct state) - offsetof(struct state, counts),
	.faults = { "present", "extra", "small" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
	.teardown = teardown,
};
