/* SPDX-License-Identifier: MIT */
/* What the library makes of pairs: their series, their laps, their evidence. */
#include "support.h"

enum { PAIRS = 3 };

static struct klat_run pairs[PAIRS];

/* Each worker of support.c is the only one of its pair. */
void set_up(void)
{
	run->pairs = PAIRS;
	run->again = run->iterations;
	run->library->pairs = pairs;
	run->library->starting = PAIRS;
	for (int i = 0; i < PAIRS; i++) {
		pairs[i] = *run;
		pairs[i].pair = i;
		pairs[i].workers = &run->workers[i];
		pairs[i].worker_count = 1;
		pairs[i].workers->run = &pairs[i];
	}
}

TEST(each_pair_has_its_own_series)
{
	klat_use_metric(run, 1, 2);
	assert_int_equal(klat_samples_map(run), 0);
	assert_int_equal(klat_samples_count(run, 1), PAIRS * 2 * run->iterations);
	for (int i = 0; i < PAIRS; i++)
		for (int s = 0; s < 2; s++)
			assert_ptr_equal(klat_series(&pairs[i], 1, s),
					 klat_series(run, 1, 2 * i + s));
	/* Laps are no samples: the end of a pair moves no series. */
	pairs[2].end += 5;
	assert_ptr_equal(klat_series(&pairs[2], 1, 1), klat_series(run, 1, 5));
}

TEST(a_pair_runs_on_until_all_have_their_samples)
{
	struct klat_worker *workers = run->workers, peer = workers[0];
	int64_t i = run->end;

	run->library->starting++; /* `peer` */
	assert_true(klat_goes_on(&workers[0], &i));
	assert_int_equal(i, run->iterations);
	assert_true(klat_begin_lap(&workers[0]));
	/* Both workers of a pair have the same laps. */
	assert_true(klat_begin_lap(&peer));
	assert_true(klat_begin_lap(&workers[1]));
	assert_false(klat_begin_lap(&workers[2])); /* the last one */
	assert_true(klat_begin_lap(&peer));
	assert_false(klat_begin_lap(&workers[0]));
	assert_false(klat_begin_lap(&peer));
	assert_false(klat_begin_lap(&workers[1]));
	assert_int_equal(workers[0].laps, 2);
	assert_int_equal(peer.laps, 2);
	assert_int_equal(workers[1].laps, 1);
	assert_int_equal(workers[2].laps, 0);
}

static void judge(struct klat_run *pair)
{
	klat_require(pair, { "events", 10 + pair->pair, KLAT_AT_MOST, 10 + 2 * (pair->pair % 2),
			     .reason = "{got} of {wanted} events" });
}

TEST(each_pair_is_judged_for_itself_and_its_counts_are_added_up)
{
	klat_judge_pairs(run, judge);
	assert_int_equal(run->outcome->status, KLAT_INVALID);
	assert_string_equal(run->outcome->reason, "pair 3: 12 of 10 events");
	assert_int_equal(run->library->count_count, 1);
	assert_int_equal(run->library->counts->value, 10 + 11 + 12);
}

TEST(a_fault_is_planted_in_the_last_pair_alone)
{
	run->library->common.plant = "sleeping";
	assert_false(klat_planted(&pairs[0], "sleeping"));
	assert_false(klat_planted(&pairs[1], "sleeping"));
	assert_true(klat_planted(&pairs[2], "sleeping"));
}
