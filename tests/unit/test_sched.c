/* SPDX-License-Identifier: MIT */
/* Policies as text, and what a thread gets of them. */
#include "support.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void assert_policy(const char *text, int policy, int priority)
{
	struct klat_policy parsed = { .policy = -1, .priority = 42 };

	assert_int_equal(klat_policy_parse(text, &parsed), 0);
	assert_int_equal(parsed.policy, policy);
	assert_int_equal(parsed.priority, priority);
	assert_false(parsed.asked);
}

TEST(policies_parse_with_and_without_priority)
{
	assert_policy("fifo", SCHED_FIFO, 42);
	assert_policy("rr", SCHED_RR, 42);
	assert_policy("other", SCHED_OTHER, 0);
	assert_policy("batch", SCHED_BATCH, 0);
	assert_policy("fifo:1", SCHED_FIFO, 1);
	assert_policy("rr:99", SCHED_RR, 99);
}

TEST(what_is_no_policy_is_refused)
{
	static const char *const texts[] = { "",
					     "FIFO",
					     "fif",
					     "fifoo",
					     "fifo:",
					     "fifo:0",
					     "fifo:100",
					     "rr:-1",
					     "rr:1x",
					     "rr: 1",
					     "rr:+1",
					     "other:1",
					     "other:0",
					     "deadline",
					     ":5",
					     "rr:5:5",
					     "rr:\n5",
					     "batch:1",
					     "rr:1 ",
					     "rr:99999999999999999999",
					     "deadline:1ms",
					     "deadline:200:1000",
					     "deadline:1ms:",
					     "deadline:1 ms:2ms",
					     "deadline:1ms:2msx",
					     "deadline:1ms:2ms:3ms",
					     "deadline:-1ms:2ms",
					     "deadline:1ms:9223372037s",
					     "deadline:1us:99999999999999999999ns" };
	struct klat_policy parsed;

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(texts); i++)
		if (klat_policy_parse(texts[i], &parsed) != -EINVAL)
			fail_msg("'%s' was taken", texts[i]);
}

TEST(a_deadline_has_its_runtime_and_period)
{
	static const char *const texts[][2] = {
		{ "deadline:200us:1ms", "deadline:200us:1ms" },
		{ "deadline:1024ns:1000us", "deadline:1024ns:1ms" },
		{ "deadline:1000ms:1s", "deadline:1s:1s" },
	};
	struct klat_policy parsed;

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(texts); i++) {
		assert_int_equal(klat_policy_parse(texts[i][0], &parsed), 0);
		assert_string_equal(klat_policy_text(&parsed).text, texts[i][1]);
	}
	assert_int_equal(parsed.runtime_ns, 1000000000);
	assert_int_equal(klat_policy_parse("deadline:1023ns:1ms", &parsed), -ERANGE);
	assert_int_equal(klat_policy_parse("deadline:2ms:1ms", &parsed), -ERANGE);
}

TEST(names_and_policies_agree)
{
	static const char *const names[] = { "fifo", "rr", "other", "batch" };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(names); i++) {
		struct klat_policy parsed = { .policy = -1, .priority = 1 };

		assert_int_equal(klat_policy_parse(names[i], &parsed), 0);
		assert_string_equal(klat_policy_name(parsed.policy), names[i]);
		assert_string_equal(klat_policy_name(parsed.policy | SCHED_RESET_ON_FORK),
				    names[i]);
	}
}

static const struct klat_policy fifo = { .policy = SCHED_FIFO, .priority = 50 };

TEST(trying_a_policy_leaves_the_thread_as_it_was)
{
	struct sched_param before, after;
	int policy = sched_getscheduler(0);

	sched_getparam(0, &before);
	klat_policy_try(&fifo); /* refused or not */
	klat_policy_try(&(struct klat_policy){
		.policy = SCHED_DEADLINE, .runtime_ns = 200000, .period_ns = 1000000 });
	sched_getparam(0, &after);
	assert_int_equal(sched_getscheduler(0), policy);
	assert_int_equal(after.sched_priority, before.sched_priority);
}

/* Without privilege, in a child of its own: 0 when refused as it must be. */
static int try_unprivileged(void)
{
	const struct rlimit none = { 0, 0 };

	if (setrlimit(RLIMIT_RTPRIO, &none) || (geteuid() == 0 && setresuid(65534, 65534, 65534)))
		return 2;
	return klat_policy_try(&fifo) == -EPERM ? 0 : 1;
}

TEST(an_ordinary_user_is_refused_by_trying_not_by_uid)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(try_unprivileged());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(spinning_ends_at_the_value_or_times_out)
{
	uint32_t word = 5;

	assert_int_equal(klat_spin_until(NULL, &word, 5), 0);
	assert_int_equal(klat_spin_until(NULL, &word, 4), 0);
	word = 2; /* past the wrap, 3 after UINT32_MAX */
	assert_int_equal(klat_spin_until(NULL, &word, UINT32_MAX), 0);
	assert_int_equal(klat_spin_until(NULL, &word, 3), -ETIMEDOUT);
}

TEST(a_rest_is_counted_and_only_taken_when_due)
{
	struct klat_worker worker = { .priority = 50 };

	klat_rest(&worker);
	assert_int_equal(worker.rests, 0);
	worker.spin_began -= 41000000;
	klat_rest(&worker);
	assert_int_equal(worker.rests, 1);
	klat_rest(&worker);
	assert_int_equal(worker.rests, 1);
}

/* A soak reads the counts of its workers at any time, also while they rest. */
TEST(a_worker_that_rests_has_counted_its_iteration)
{
	struct klat_worker worker = { .run = run, .spins = KLAT_ALWAYS };

	klat_attend(&worker, 5);
	assert_int_equal(worker.iteration, 5);
}

TEST(only_a_sleep_that_switches_is_counted)
{
	struct klat_worker worker = { 0 };

	assert_int_equal(klat_sleep_until(&worker, 1), 0);
	assert_int_equal(worker.rests, 0);
	klat_sleep(&worker, 1000000);
	assert_int_equal(worker.rests, 1);
}

TEST(an_ordinary_thread_needs_no_rest)
{
	struct klat_worker worker = { .spin_began = 1 };

	klat_rest(&worker);
	assert_int_equal(worker.rests, 0);
}
