/* SPDX-License-Identifier: MIT */
/* The program: from the command line to the exit status. */
#include "cli/cli.h"

#include "arch/isa.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { EXIT_MEASURED = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_UNTRUSTED = 3, EXIT_SKIPPED = 4 };

/* 0 if `given` numbers in --cpus fit the workers' places, else the error of klat_usage(). */
static int check_cpus(struct klat_run *run, int given)
{
	if (run->cpus_given && given != run->cpu_count)
		return klat_usage(run, "this measurement takes %d CPU%s; --cpus names %d",
				  run->cpu_count, run->cpu_count == 1 ? "" : "s", given);
	if (run->library->on_one_cpu && run->distinct_cpus && run->cpu_count > run->pairs)
		return klat_usage(run, "--cpus one: each role spins and needs its own CPU");
	for (int i = 0; i < given; i++) {
		const int first = i - i % (run->cpu_count / run->pairs);

		if (klat_place_is_repeated(run, i) && run->distinct_cpus)
			return klat_usage(run,
					  "--cpus names CPU %d twice, but each role spins and "
					  "needs its own CPU",
					  run->cpus[i]);
		for (int j = 0; j < first; j++)
			if (run->cpus[j] == run->cpus[i])
				return klat_usage(run,
						  "--cpus names CPU %d in two pairs, but each pair "
						  "needs its own CPUs",
						  run->cpus[i]);
	}
	return 0;
}

/* The policy that --policy names, or the default. */
static int take_policy(struct klat_run *run)
{
	struct klat_library *library = run->library;
	const char *text = library->common.policy;
	int err;

	library->policy = klat_options_policy(run->benchmark);
	if (!text)
		return 0;
	library->policy.asked = true;
	library->policy.priority = klat_options_priority(run->benchmark);
	err = klat_policy_parse(text, &library->policy);
	if (err == -ERANGE)
		return klat_usage(
			run, "--policy %s: RUNTIME must be at least 1024ns, and at most PERIOD",
			text);
	if (err)
		return klat_usage(
			run,
			"--policy takes fifo, rr, other, batch or deadline, not '%s'; fifo and rr "
			"may have a priority of 1 to 99: fifo:50; deadline needs RUNTIME and "
			"PERIOD in ns, us, ms or s: deadline:200us:1ms",
			text);
	run->runtime_ns = library->policy.runtime_ns;
	run->period_ns = library->policy.period_ns;
	if (klat_is_deadline(run) && !run->benchmark->takes_deadline)
		return klat_usage(run,
				  "--policy %s: this program does not measure under SCHED_DEADLINE",
				  text);
	return 0;
}

/* Check the command line, before anything on the machine changes. */
static int prepare(struct klat_run *run)
{
	struct klat_library *library = run->library;
	struct klat_common *common = &library->common;
	int err, given;

	err = take_policy(run) ?: common->cpus ? klat_place_given(run, common->cpus) : 0;
	if (err)
		return err;
	given = run->cpu_count;
	/* Until the CPUs are chosen, `run` describes one pair: cpu_count is that of a pair. */
	run->cpu_count /= run->pairs;
	run->one_cpu = klat_place_is_one_cpu(run);
	if (run->benchmark->workers)
		klat_use_table(run, run->benchmark->workers, run->benchmark->worker_count);
	err = run->benchmark->configure ? run->benchmark->configure(run) : 0;
	if (err)
		return err;
	klat_use_default_metrics(run);
	if (run->ordinary && common->policy && klat_is_real_time(run))
		return klat_usage(
			run, "--policy %s: these options measure under an ordinary policy only",
			common->policy);
	if (run->ordinary && !common->policy)
		library->policy = (struct klat_policy){ .policy = SCHED_OTHER, .asked = true };
	run->cpu_count *= run->pairs;
	if (check_cpus(run, given))
		return -EINVAL;
	if (run->low_priority && klat_is_real_time(run) &&
	    run->low_priority >= library->policy.priority)
		return klat_usage(run,
				  "the low priority %d must be below the priority of --policy, %d",
				  run->low_priority, library->policy.priority);
	if (common->trace_above_ns && klat_slow_choose(run))
		return -EINVAL;
	err = klat_soak_prepare(run);
	if (err)
		return err;
	klat_run_set_edges(run);
	err = klat_options_params(run, common, library->params, sizeof(library->params));
	return err ? klat_usage(run, "the options are too long to record") : 0;
}

/* errno is 0 afterwards if an earlier write failed: the stream keeps only its error flag. */
static bool is_written(FILE *out)
{
	errno = 0;
	return !fflush(out) && !ferror(out);
}

static void warn_of_status(const struct klat_run *run)
{
	if (run->outcome->status != KLAT_OK)
		klat_warn(run, "%s: %s", klat_status_name(run->outcome->status),
			  run->outcome->reason);
}

static int print(struct klat_run *run)
{
	const struct klat_common *common = &run->library->common;
	const char *record = common->record;
	int err = 0;

	warn_of_status(run);
	if (common->quiet)
		return 0;
	if (common->csv) {
		char *rows = klat_record_rows(run, 0);

		err = rows ? 0 : -ENOMEM;
		printf("%s%s", klat_record_header, rows ? rows : "");
		free(rows);
	} else if (common->json) {
		err = klat_json_run(run, stdout);
	} else if (klat_has_result(run) && common->soak_s) {
		klat_soak_text(run, stdout);
	} else if (klat_has_result(run)) {
		klat_text(run, stdout);
	}
	if (!err && is_written(stdout))
		return 0;
	klat_warn(run, "%s%s%sstandard output: %s", record ? "recorded in " : "",
		  record ? record : "", record ? "; " : "",
		  err     ? strerror(-err)
		  : errno ? strerror(errno)
			  : "an earlier write failed");
	return -EIO;
}

static const int exit_statuses[] = { [KLAT_OK] = EXIT_MEASURED,
				     [KLAT_DISTURBED] = EXIT_MEASURED,
				     [KLAT_INVALID] = EXIT_UNTRUSTED,
				     [KLAT_SKIPPED] = EXIT_SKIPPED,
				     [KLAT_ERROR] = EXIT_FAILED };

/* A full disk, or a limit on files, ends as a wrong command line does: another run would end in the
 * same way. */
static int unrecorded_status(int err)
{
	return err == -ENOSPC || err == -EDQUOT || err == -EFBIG ? EXIT_USAGE : EXIT_FAILED;
}

/* Print --help, --version and so on. True if there is nothing else to do. */
static bool inform(const struct klat_run *run)
{
	const struct klat_common *common = &run->library->common;

	if (!common->help && !common->version && !common->print_benchmark)
		return false;
	klat_run_restore_defaults(run);
	if (common->help)
		klat_help(run->benchmark, stdout);
	else if (common->version)
		printf("%s (klat %s, %s)\n", run->benchmark->name, KLAT_VERSION, KLAT_COMMIT);
	else
		klat_json_benchmark(run->benchmark, stdout);
	return true;
}

/* --check-for: take the mode and the number of CPUs of another machine, "MODE:CPUS", for checks of
 * the options without a run. */
static int check_for_machine(const struct klat_run *run, const char *machine)
{
	static const char *const modes[] = { "virtual", "emulated", "counted" };
	size_t length = strcspn(machine, ":");
	int count = 0, end = 0;

	if (machine[length])
		sscanf(machine + length + 1, "%5d%n", &count, &end);
	if (!machine[length] || (count > 0 && count <= KLAT_MAX_CPU && !machine[length + 1 + end]))
		for (size_t i = 0; i < KLAT_ARRAY_SIZE(modes); i++)
			if (strlen(modes[i]) == length && !strncmp(modes[i], machine, length)) {
				klat_mode_assume(modes[i]);
				klat_cpus_assume(count);
				return 0;
			}
	klat_warn(run, "--check-for takes MODE or MODE:CPUS, as in counted:1, not '%s'", machine);
	return -EINVAL;
}

static int run_command(struct klat_run *run, int argc, char **argv)
{
	struct klat_library *library = run->library;
	const char *check_for;
	klat_cpu_set allowed;
	int session = -1, err;

	if (klat_options_parse(run, &run->library->common, argc, argv))
		return EXIT_USAGE;
	check_for = run->library->common.check_for;
	if (inform(run))
		return is_written(stdout) ? EXIT_MEASURED : EXIT_FAILED;
	/* The clocks of the C library read the same counter, so klat cannot even record the skip.
	 */
	if (klat_arch_is_trapped(klat_ticks) &&
	    (prctl(PR_SET_TSC, PR_TSC_ENABLE) || klat_arch_is_trapped(klat_ticks))) {
		klat_skip(run,
			  "a program may not read this CPU's counter here, and prctl(PR_SET_TSC) "
			  "could not allow it: start klat from a process that may read it");
		warn_of_status(run);
		return EXIT_SKIPPED;
	}
	if (check_for && check_for_machine(run, check_for))
		return EXIT_USAGE;
	if (prepare(run))
		return EXIT_USAGE;
	if (check_for) {
		if (!klat_place_possible(run, &allowed))
			klat_slow_possible(run);
		warn_of_status(run);
		return exit_statuses[run->outcome->status];
	}
	if (klat_counted())
		klat_arch_count_instructions();
	klat_signals_hold(run);
	if (run->library->common.record) {
		session = klat_session_join(run);
		if (session < 0) {
			klat_warn(run, "%s", run->outcome->reason);
			return unrecorded_status(session);
		}
	}
	library->soak.record = klat_record_append;
	library->soak.session = session;
	library->soak.show = klat_soak_progress_text;
	klat_run_perform(run);
	klat_soak_progress_end(run);
	/* A soak has recorded its segments already. A soak that failed gets one more row, with the
	 * reason, unless recording itself failed. */
	if (session >= 0 && !library->soak.unrecorded &&
	    !(library->soak.lap && klat_has_result(run)) &&
	    (err = klat_record_append(run, session))) {
		klat_warn(run, "%s", run->outcome->reason);
		return unrecorded_status(err);
	}
	klat_signals_release();
	if (print(run))
		return EXIT_FAILED;
	return library->soak.unrecorded ? unrecorded_status(library->soak.unrecorded)
					: exit_statuses[run->outcome->status];
}

int klat_main(const struct klat_benchmark *benchmark, int argc, char **argv)
{
	struct klat_run *run = klat_run_make(benchmark);
	int status;

	if (!run)
		return EXIT_FAILED;
	/* An alarm survives exec, and would end the run. */
	alarm(0);
	status = run_command(run, argc, argv);
	klat_run_free(run);
	return status;
}
