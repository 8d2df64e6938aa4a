/* SPDX-License-Identifier: MIT */
/* What the messages of a run must show, by transport. */
#include "transport.h"

/* Of both directions. */
static int64_t megabytes_a_second(const struct klat_run *run)
{
	const uint64_t *round_trip = klat_series(run, ROUND_TRIP, 0);
	double ticks = 0;

	for (int64_t i = 0; i < run->iterations; i++)
		ticks += round_trip[i];
	return 2e3 * options.bytes * run->iterations / klat_ticks_to_ns(run, ticks);
}

void verify_messages(struct klat_run *run)
{
	const struct state *state = run->state;
	struct tally sum = { 0 };
	const int64_t expected = run->worker_count * klat_observed(run),
		      bytes = expected * options.bytes;
	const bool whole = !transport_of()->datagrams;
	/* The two sides go on while a soak reads their tallies. */
	const enum klat_rule all = run->soak ? KLAT_MOSTLY : KLAT_EXACTLY;

	for (int i = 0; i < 2; i++)
		klat_add_counts(&sum, &state->sides[i].tally, sizeof(sum));
	klat_require(run,
		     { "sent", sum.sent, all, expected,
		       .reason = "{got} messages were sent, not {wanted}" },
		     { "received", sum.received, all, expected,
		       .reason = "{got} messages were received, not {wanted}" },
		     { "damaged", sum.damaged, KLAT_NEVER, expected,
		       .reason = "{got} of {wanted} messages arrived damaged or out of order" },
		     { "bytes_sent", sum.bytes_sent, all, bytes,
		       .reason = "{got} bytes were sent, not {wanted}" },
		     { "bytes_received", sum.bytes_received, all, bytes,
		       .reason = "{got} bytes were received, not {wanted}" },
		     { "lost", sum.lost, KLAT_NEVER,
		       .reason = "messages were lost or late, and sent again", .disturbs = true,
		       .unless = whole },
		     { "repaired", sum.repaired, options.drop_every ? KLAT_COUNTED : KLAT_NEVER,
		       .reason = "parts of messages were lost or late, and repaired",
		       .disturbs = true, .unless = whole },
		     { "resent", .got = sum.resent, .unless = whole },
		     { "repeated", .got = sum.repeated, .unless = whole },
		     { "outdated", .got = sum.outdated, .unless = whole },
		     { "dropped", .got = sum.dropped, .unless = !options.drop_every },
		     { "dropped_parts", .got = sum.dropped_parts, .unless = !options.drop_every },
		     { "reordered", .got = sum.reordered, .unless = !options.reorder_every },
		     { "duplicated", .got = sum.duplicated, .unless = !options.duplicate_every },
		     { "pauses", sum.pauses, KLAT_NEVER,
		       .reason = "a spinner paused because no message came", .disturbs = true,
		       .unless = !sum.pauses },
		     { "late", sum.late, KLAT_AT_MOST, run->iterations / 2,
		       "--rate was not kept: {got} messages were sent more than an interval late, "
		       "and at most {wanted} may be",
		       .unless = !options.rate });
	/* Passing the address of a block that nobody reads has no throughput. */
	if (!options.listen && !run->soak &&
	    (options.touch != UNTOUCHED ||
	     (options.transport != THREAD_POINTER && options.transport != SHM_ZERO_COPY)))
		klat_count(run, "mb_per_s", megabytes_a_second(run));
}
