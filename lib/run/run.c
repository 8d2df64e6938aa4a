/* SPDX-License-Identifier: MIT */
/* The life of a run: see klat.h. */
#include "run/run.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *map_shared(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static size_t round_up(size_t size)
{
	return (size + 4095) & ~(size_t)4095;
}

struct klat_run *klat_run_make(const struct klat_benchmark *benchmark)
{
	struct {
		struct klat_run run;
		struct klat_library library;
	} * both;
	size_t defaults_at = round_up(sizeof(*both)),
	       state_at = defaults_at + round_up(benchmark->values_size);
	char *memory = map_shared(state_at + benchmark->state_size);
	struct klat_run *run;

	if (!memory) {
		fprintf(stderr, "%s: cannot map shared memory: %s\n", benchmark->name,
			strerror(errno));
		return NULL;
	}
	both = (void *)memory;
	run = &both->run;
	run->benchmark = benchmark;
	run->library = &both->library;
	run->outcome = &both->library.outcome;
	run->library->defaults = memory + defaults_at;
	run->state = memory + state_at;
	run->pairs = 1;
	run->library->pairs = run;
	run->patience = klat_emulated() ? 300 : 30;
	if (benchmark->values_size)
		memcpy(run->library->defaults, benchmark->values, benchmark->values_size);
	return run;
}

void klat_run_restore_defaults(const struct klat_run *run)
{
	if (run->benchmark->values_size)
		memcpy(run->benchmark->values, run->library->defaults, run->benchmark->values_size);
}

void klat_run_free(struct klat_run *run)
{
	klat_run_restore_defaults(run);
	klat_soak_free(run);
	free(run->library->counts);
	free(run->library->offsets);
	free(run->cpus);
}

static bool is_planted(const struct klat_run *run, const char *fault)
{
	const char *planted = run->library->common.plant;

	return planted && !strcmp(planted, fault);
}

bool klat_planted(const struct klat_run *run, const char *fault)
{
	return run->pair == run->pairs - 1 && is_planted(run, fault);
}

uint64_t klat_seed(const struct klat_run *run)
{
	const struct klat_common *common = &run->library->common;
	uint64_t seed = common->seed;

	return klat_draw(&seed) + common->run;
}

void klat_run_set_edges(struct klat_run *run)
{
	bool planted = is_planted(run, "edges");

	if (!run->warmup)
		run->warmup = 1;
	run->lead = planted ? 0 : run->warmup < KLAT_LEAD ? run->warmup : KLAT_LEAD;
	/* A lone worker disturbs no other worker after its last sample. A soak has no last sample.
	 */
	if (run->library->soak.lap)
		run->end = run->iterations;
	else if (run->pairs > 1)
		run->end = (run->again = run->iterations) + KLAT_TURNS;
	else
		run->end = run->iterations + (planted || run->most_workers == 1 ? 0 : KLAT_TAIL);
}

static int map_workers(struct klat_run *run)
{
	struct klat_library *library = run->library;

	/* One worker for each place, and one more if two roles share the first place. */
	library->worker_capacity = run->most_workers ?: run->cpu_count / run->pairs + 1;
	run->workers =
		map_shared(round_up(run->pairs * library->worker_capacity * sizeof(*run->workers)));
	if (!run->workers)
		return klat_error(run, errno, "cannot map shared memory: %m");
	/* Without descriptors, evidence from files of /proc would be missing. Each worker keeps a
	 * file open; the rest is for one file at a time, and for the program. */
	return klat_allow_more_files(run, run->pairs * (library->worker_capacity + 64));
}

/* The run of each pair, once the whole run is complete. Only setup() writes to it. */
static int make_pairs(struct klat_run *run)
{
	const size_t size = round_up(run->benchmark->state_size), runs = run->pairs * sizeof(*run);
	char *memory;

	if (run->pairs == 1)
		return 0;
	memory = map_shared(round_up(runs) + run->pairs * size);
	if (!memory)
		return klat_error(run, errno, "cannot map shared memory: %m");
	run->library->pairs = (void *)memory;
	klat_for_each_pair(pair, run) {
		*pair = *run;
		pair->pair = pair - run->library->pairs;
		pair->state = memory + round_up(runs) + pair->pair * size;
		pair->cpu_count /= run->pairs;
		pair->cpus += pair->pair * pair->cpu_count;
		pair->one_cpu = klat_place_is_one(pair);
	}
	return 0;
}

static int take_policy(struct klat_run *run)
{
	struct klat_policy *policy = &run->library->policy;
	int err;

	if (klat_is_deadline(run))
		return klat_deadline_try(run);
	err = klat_policy_try(policy);
	if (!err)
		return 0;
	if (policy->asked)
		return klat_error(run, -err,
				  "%s refused: %m; run as root, raise RLIMIT_RTPRIO, or ask for "
				  "--policy other",
				  klat_policy_text(policy).text);
	run->library->refused = *policy;
	run->library->policy_error = -err;
	policy->policy = SCHED_OTHER;
	policy->priority = 0;
	return 0;
}

static void calibrate(struct klat_run *run)
{
	if (!run->library->counter.khz)
		klat_counter_calibrate(&run->library->counter);
	run->counter_khz = run->library->counter.khz;
}

/* The argument of klat_spin() for a spin of `ns`. 0: no spin. */
static uint64_t spin_of(const struct klat_run *run, int64_t ns)
{
	uint64_t ticks, excess;

	if (!ns)
		return 0;
	ticks = klat_ns_to_ticks(run, ns);
	excess = klat_spin_excess();
	return ticks <= excess ? 1 : ticks - excess;
}

int klat_run_perform(struct klat_run *run)
{
	struct klat_library *library = run->library;
	int err;

	/* A skipped run is recorded with its time too. */
	library->start_ns = klat_clock_ns(CLOCK_REALTIME);
	if (klat_arch_missing())
		return klat_skip(run, "%s", klat_arch_missing());
	err = klat_slow_possible(run) ?: klat_place(run) ?: map_workers(run);
	err = err ?: take_policy(run) ?: klat_soak_map(run) ?: klat_samples_map(run);
	if (err)
		return err;
	if (library->common.inject_ns || library->common.trace_above_ns || library->soak.lap ||
	    run->benchmark->needs_frequency)
		calibrate(run);
	run->inject = spin_of(run, library->common.inject_ns);
	err = make_pairs(run) ?: klat_offsets_narrow(run) ?: klat_supervise(run)
			      ?: klat_offsets_narrow(run);
	if (err)
		return err;
	if (!library->soak.lap)
		klat_warn_of_refusals(run);
	calibrate(run);
	if (run->pairs > 1)
		klat_for_each_pair(pair, run) {
			pair->counter_khz = run->counter_khz;
			/* Its laps belong to its tail. */
			pair->end += pair->workers->laps * KLAT_TURNS;
		}
	return library->soak.lap ? 0 : klat_run_judge(run);
}
