/* SPDX-License-Identifier: MIT */
/* The two sides: the bodies of the workers and their errors. All stamps are taken here. */
#include "inet.h"
#include "pattern.h"

#include <errno.h>
#include <sys/socket.h>
#include <time.h>

int say_silent(struct side *side, const char *awaited)
{
	return klat_error(side->run, ETIMEDOUT,
			  "the %s timed out after %lld s waiting for a %s, at iteration %lld: %s",
			  side->name, (long long)side->limit_ms / 1000, awaited,
			  (long long)side->worker->iteration,
			  options.peer == REMOTE ? "does the other machine still answer?"
						 : "is another real-time task on these CPUs?");
}

int say_gone(struct side *side)
{
	return klat_error(side->run, EPIPE,
			  "the other side of the %s is gone: it left at iteration %lld", side->name,
			  (long long)side->worker->iteration);
}

static int begin_body(struct klat_worker *worker, struct side *side)
{
	const struct state *state = worker->state;
	int err;

	side->worker = worker;
	/* A forked process has not mapped the shared pages yet. */
	for (size_t at = 0; worker->process && at < state->region_size; at += PAGE)
		__atomic_fetch_or(state->region + at, 0, __ATOMIC_RELAXED);
	err = options.peer == REMOTE ? remote_start(side->run) : 0;
	/* A little more than the limit, so that two beats are never closer than the limit. */
	if (!err && options.wait == BLOCK && side->transport->beat_ms)
		err = beat_begin(side, side->transport->beat_ms() + 1);
	return err;
}

static void begin_iteration(struct side *side, int64_t i)
{
	if (klat_iteration(side->worker, i))
		side->tally = (struct tally){ 0 };
}

static uint64_t base_of(uint64_t number, int sender)
{
	return pattern_base(options.touch == WRITE ? number : 0, sender);
}

static inline int send_message(struct side *side, uint64_t word, int self)
{
	if (options.touch == WRITE)
		pattern_write(side->outgoing, options.bytes, base_of(word & WORD_NUMBER, self));
	if (__builtin_expect(side->spoils, 0))
		side->outgoing[options.bytes - 1] ^= 1;
	side->tally.sent++;
	return side->transport->send(side, word);
}

static inline int receive_message(struct side *side, struct message *message, uint64_t number,
				  int self)
{
	int err;

	side->awaited = number;
	err = side->transport->receive(side, message);
	if (err)
		return err;
	side->tally.received++;
	if ((message->word & WORD_NUMBER) != number ||
	    (options.touch != UNTOUCHED &&
	     pattern_differs(message->data, options.bytes, base_of(number, !self))))
		side->tally.damaged++;
	return 0;
}

/* With --touch none, read the last block once, after the timed part. */
static void check_last(struct side *side, const struct message *message, int self)
{
	uint64_t number = klat_made(side->run);

	if (options.touch == UNTOUCHED &&
	    pattern_differs(message->data, options.bytes, base_of(number, !self)))
		side->tally.damaged++;
}

/* Open loop: a message is due `interval` after the one before, whenever that one is answered. */
struct schedule {
	double interval, due; /* ticks */
};

static void await_due(struct side *side, struct schedule *schedule)
{
	const double wake_early_ns = 100000;
	double left_ns;

	if (!schedule->due)
		schedule->due = klat_ticks();
	while ((left_ns = klat_ticks_to_ns(side->run, schedule->due - klat_ticks())) >
	       2 * wake_early_ns) {
		klat_sleep(side->worker, left_ns - wake_early_ns);
		/* This was a rest. Another one would lower the rate. */
		side->worker->spin_began = 0;
	}
	while (klat_ticks() < schedule->due)
		;
}

/*
 * Between two messages. A spinning pair agrees on its pause in the message before, so no sample
 * contains it. In a blocking pair only the initiator rests, because the responder sleeps anyway.
 */
static void rest(struct side *side, struct schedule *schedule, bool agreed)
{
	const uint64_t before = klat_ticks();
	const bool blocks = options.wait == BLOCK;

	if (blocks ? !klat_rest(side->worker) : !agreed)
		return;
	if (!blocks)
		klat_sleep(side->worker, KLAT_REST_NS + 1000000);
	side->spun_since = klat_ticks();
	/* The pause is the program's own and makes no message late. */
	schedule->due += schedule->due ? side->spun_since - before : 0;
}

/* Exchange the messages of the iterations from `i` on. Works on a copy of the schedule, which stays
 * in registers. */
static int exchange_all(struct klat_worker *worker, int64_t i, struct schedule *kept)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct side *side = &state->sides[INITIATOR];
	struct schedule schedule = *kept;
	uint64_t *round_trip = klat_series(run, ROUND_TRIP, 0), *half = klat_series(run, HALF, 0),
		 *response = klat_series(run, RESPONSE, 0);
	struct message answer = { 0 };
	int err = 0;

	for (; i < klat_end(run) && !err; i++) {
		uint64_t number = i + run->warmup + 1, begin, end;
		bool resting = options.wait == SPIN && klat_ticks() - side->spun_since > side->turn;

		begin_iteration(side, i);
		if (response)
			await_due(side, &schedule);
		begin = klat_stamp_begin();
		err = send_message(side, number | (resting ? WORD_REST : 0), INITIATOR);
		err = err ?: receive_message(side, &answer, number, INITIATOR);
		end = klat_stamp_end(worker);
		round_trip[i] = end - begin;
		half[i] = round_trip[i] / 2;
		if (response) {
			response[i] = end - (uint64_t)schedule.due;
			side->tally.late +=
				klat_is_sample(run, i) && begin - schedule.due > schedule.interval;
			schedule.due += schedule.interval;
		}
		rest(side, &schedule, resting);
	}
	*kept = schedule;
	if (!err)
		check_last(side, &answer, INITIATOR);
	return err;
}

int ping(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct side *side = &state->sides[INITIATOR];
	struct schedule schedule = { .interval = options.rate
							 ? run->counter_khz * 1e3 / options.rate
							 : 0 };
	int64_t i = klat_first(run);
	int err = begin_body(worker, side);

	side->spun_since = klat_ticks();
	while (!err && klat_goes_on(worker, &i)) {
		err = exchange_all(worker, i, &schedule);
		i = klat_end(run);
	}
	__atomic_store_n(&state->finished, true, __ATOMIC_RELEASE);
	beat_end(side);
	if (state->control >= 0 && !err)
		shutdown(state->control, SHUT_WR);
	return err;
}

/* The last answer may be lost. Repeat it until the initiator has finished. */
static int linger(struct side *side)
{
	struct message none;
	int err;

	if (!side->transport->datagrams)
		return 0;
	side->lingers = true;
	side->awaited++;
	err = side->transport->receive(side, &none);
	return err == -ECANCELED ? 0 : err;
}

int pong(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct side *side = &state->sides[RESPONDER];
	const bool sleeps = klat_planted(run, "sleep"), corrupts = klat_planted(run, "corrupt");
	uint64_t *turnaround = klat_series(run, TURNAROUND, 0), begin = 0;
	struct message message = { 0 };
	int err = begin_body(worker, side);

	/* On one CPU this loop is in the sample: klat_goes_on() alone would lengthen it. */
	for (int64_t i = klat_first(run);
	     (__builtin_expect(i < klat_end(run), 1) || klat_goes_on(worker, &i)) && !err; i++) {
		uint64_t number = i + run->warmup + 1;

		begin_iteration(side, i);
		if (__builtin_expect(sleeps, 0))
			klat_nap(20000);
		side->spoils = corrupts && i == klat_end(run) - 1;
		err = receive_message(side, &message, number, RESPONDER);
		if (turnaround)
			begin = klat_stamp_begin();
		klat_inject(run, i);
		err = err ?: send_message(side, message.word, RESPONDER);
		if (turnaround)
			turnaround[i] = klat_stamp_end(worker) - begin;
		if (!err && message.word & WORD_REST)
			klat_sleep(worker, KLAT_REST_NS);
	}
	if (!err)
		check_last(side, &message, RESPONDER);
	err = err ? err : linger(side);
	beat_end(side);
	return err;
}
