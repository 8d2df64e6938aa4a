/* SPDX-License-Identifier: MIT */
#include "transport.h"

/* Passing the address of a block that nobody reads has no throughput. */
static bool moves_bytes(const struct options *o)
{
	return o->touch != UNTOUCHED ||
	       (o->transport != THREAD_POINTER && o->transport != SHM_ZERO_COPY);
}

/* Of both directions. */
static int64_t megabytes_a_second(const struct klat_run *run)
{
	const struct options *o = run->options;
	const uint64_t *round_trip = klat_series(run, ROUND_TRIP, 0);
	double ticks = 0;

	for (int64_t i = 0; i < run->iterations; i++)
		ticks += round_trip[i];
	return 2.0 * o->bytes * run->iterations / 1e6 / (ticks / run->counter_khz / 1e3);
}

static void verify_waits(struct klat_run *run)
{
	const struct options *o = run->options;

	for (int i = 0; i < run->worker_count; i++) {
		const struct klat_worker *worker = &run->workers[i];

		if (o->wait == BLOCK)
			klat_verify_slept(run, worker->role);
		/* A spinner sometimes sleeps on a lock of the kernel, for example of a pipe. */
		else if (!klat_is_rare(worker->voluntary, klat_observed(run)))
			klat_invalid(run, "the %s slept %lld times despite --wait spin",
				     worker->role, (long long)worker->voluntary);
	}
}

static void verify_rate(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;

	if (!o->rate)
		return;
	klat_count(run, "late", state->late);
	if (state->late * 2 > run->iterations)
		klat_invalid(
			run,
			"--rate %lld was not kept: %lld of %lld messages were sent more than an "
			"interval late",
			(long long)o->rate, (long long)state->late, (long long)run->iterations);
}

static void verify_losses(struct klat_run *run, const struct tally *sum)
{
	const struct options *o = run->options;

	if (!transport_of(run)->datagrams)
		return;
	klat_count(run, "lost", sum->lost);
	klat_count(run, "repaired", sum->repaired);
	klat_count(run, "resent", sum->resent);
	klat_count(run, "repeated", sum->repeated);
	klat_count(run, "outdated", sum->outdated);
	if (o->drop_every) {
		klat_count(run, "dropped", sum->dropped);
		klat_count(run, "dropped_parts", sum->dropped_parts);
	}
	if (o->reorder_every)
		klat_count(run, "reordered", sum->reordered);
	if (o->duplicate_every)
		klat_count(run, "duplicated", sum->duplicated);
	if (sum->lost)
		klat_disturbed(run, "messages were lost or late, and sent again");
	if (sum->repaired && !o->drop_every)
		klat_disturbed(run, "parts of messages were lost or late, and repaired");
}

static struct tally add_up(const struct state *state)
{
	struct tally sum = { 0 };
	int64_t *to = (int64_t *)&sum;

	for (int i = 0; i < 2; i++) {
		const int64_t *from = (const int64_t *)&state->sides[i].tally;

		for (size_t n = 0; n < sizeof(sum) / sizeof(*to); n++)
			to[n] += from[n];
	}
	return sum;
}

int verify_messages(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct tally sum = add_up(run->state);
	const int64_t expected = run->worker_count * klat_observed(run);

	klat_count(run, "sent", sum.sent);
	klat_count(run, "received", sum.received);
	klat_count(run, "damaged", sum.damaged);
	klat_count(run, "bytes_sent", sum.bytes_sent);
	klat_count(run, "bytes_received", sum.bytes_received);
	if (!o->listen && moves_bytes(o))
		klat_count(run, "mb_per_s", megabytes_a_second(run));
	if (sum.sent != expected || sum.received != expected ||
	    sum.bytes_sent != expected * o->bytes || sum.bytes_received != expected * o->bytes)
		klat_invalid(run, "%lld messages sent and %lld received, not %lld of each",
			     (long long)sum.sent, (long long)sum.received, (long long)expected);
	if (sum.damaged)
		klat_invalid(run, "%lld messages arrived damaged or out of order",
			     (long long)sum.damaged);
	verify_losses(run, &sum);
	if (sum.pauses) {
		klat_count(run, "pauses", sum.pauses);
		klat_disturbed(run, "a spinner paused after %d ms without a message", SPIN_MS);
	}
	verify_waits(run);
	verify_rate(run);
	return 0;
}
