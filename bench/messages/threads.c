/* SPDX-License-Identifier: MIT */
/* Messages between threads: the hub's body and that of a spoke. */
#include "messages.h"

#include "prefault.h"

#include <errno.h>

int threads_prepare(struct state *state)
{
	if (!sync_is_uring(owner_kind(options.wake)))
		return 0;
	sync_join(&state->hub.wake, &state->spokes->owner.wake);
	return -pthread_barrier_init(&state->begun, NULL, 2);
}

/* The hub's side of one bounce. */
static int bounce(struct klat_worker *worker, struct spoke *spoke)
{
	struct state *state = worker->state;
	uint64_t sent = klat_stamp_begin();
	struct message *message = message_make(&state->costs, &spoke->message);

	if (!message)
		return -ENOMEM;
	klat_inject(worker->run, spoke->round - 1 + klat_first(worker->run));
	message->thread = spoke - state->spokes;
	message->round = spoke->round;
	message->sent = sent;
	return owner_send(&spoke->owner, message);
}

/* Send a message to each spoke that has rounds left. */
static int bounce_all(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct spoke *spokes = ((struct state *)worker->state)->spokes;
	int err = 0;

	for (int64_t t = 0; t < options.threads && !err; t++)
		if (spokes[t].round <= klat_made(run))
			err = bounce(worker, &spokes[t]);
	return err;
}

/* Take an answer and store its sample; *from is the spoke that sent it. */
static int handle_answer(struct klat_worker *worker, struct spoke **from, uint64_t *got)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct message *message, answer;
	int err = owner_take(&state->hub, &message);

	if (err)
		return err;
	answer = *message;
	message_free(&state->costs, message);
	*got = klat_stamp_end(worker);
	*from = &state->spokes[answer.thread];
	state->mismatches += answer.round != (*from)->round;
	klat_series(run, HOP, answer.thread)[answer.round - 1 + klat_first(run)] =
		((answer.taken - answer.sent) + (*got - answer.answered)) / 2;
	return 0;
}

/* Before the first message. A ring of io_uring belongs to the thread that makes it. */
static int begin(struct klat_worker *worker, struct owner *owner)
{
	struct state *state = worker->state;
	int err = 0;

	owner->worker = worker;
	if (sync_is_uring(owner_kind(options.wake))) {
		err = sync_begin(&owner->wake);
		/* No other thread maps or uses a ring meanwhile. */
		pthread_barrier_wait(&state->begun);
		klat_prefault();
		pthread_barrier_wait(&state->begun);
	}
	return err;
}

/*
 * The hub sends each spoke a message, and another one after each answer. When a sleep is due, the
 * hub holds the messages until all answers have come.
 */
int hub(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	const uint64_t rest_every = klat_ns_to_ticks(run, KLAT_SPIN_NS);
	/* Stamps of the last answers of the warm-up, of the timed part and of the tail. */
	uint64_t got[3] = { 0 }, awake_since = klat_stamp_begin(), rested = 0;
	const int64_t timed = run->iterations * options.threads,
		      end = klat_end(run) * options.threads;
	int64_t held = 0, left = options.threads, handled = klat_first(run) * options.threads;
	int err;

	err = begin(worker, &state->hub) ?: bounce_all(worker);
	while (left && !err) {
		struct spoke *spoke;

		if (handled % options.threads == 0 &&
		    klat_iteration(worker, handled / options.threads))
			state->hub.counts.cpu_ns = -klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
		handled++;
		err = handle_answer(worker, &spoke, &got[(handled > 0) + (handled > timed)]);
		if (err)
			break;
		/* A lap is of one thread. */
		if (handled == end && klat_begin_lap(worker)) {
			handled = run->again;
			spoke->round = run->warmup + handled;
		}
		if (spoke->round++ >= klat_made(run))
			left--;
		else if (klat_stamp_begin() - awake_since > rest_every)
			held++;
		else
			err = bounce(worker, spoke);
		/* All messages are answered, so all threads can sleep. */
		if (held && held == left && !err) {
			uint64_t since = klat_stamp_begin();

			state->hub.rested =
				__atomic_add_fetch(&state->costs.resting, 1, __ATOMIC_RELAXED);
			klat_sleep(worker, KLAT_REST_NS);
			err = bounce_all(worker);
			held = 0;
			awake_since = klat_stamp_begin();
			rested += klat_is_sample(run, handled / options.threads)
					  ? awake_since - since
					  : 0;
		}
	}
	state->hub.counts.cpu_ns += klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	state->ticks = got[1] - got[0] - rested;
	return err;
}

/* Answer the messages of the iterations from `i` on. */
static int answer_all(struct klat_worker *worker, struct spoke *spoke, int64_t i)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	int err = 0;

	for (; i < klat_end(run) && !err; i++) {
		struct message *message, answer;

		if (klat_iteration(worker, i))
			spoke->owner.counts.cpu_ns = -klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
		err = owner_take(&spoke->owner, &message);
		if (err)
			break;
		answer = *message;
		message_free(&state->costs, message);
		answer.taken = klat_stamp_end(worker);
		answer.answered = klat_stamp_begin();
		klat_inject(run, i);
		message = message_make(&state->costs, &spoke->message);
		if (!message)
			return -ENOMEM;
		*message = answer;
		err = owner_send(&state->hub, message);
	}
	return err;
}

int spoke_thread(struct klat_worker *worker)
{
	struct spoke *spoke = &((struct state *)worker->state)->spokes[worker->index];
	int64_t i = klat_first(worker->run);
	int err;

	err = begin(worker, &spoke->owner);
	do {
		err = err ?: answer_all(worker, spoke, i);
		i = klat_end(worker->run);
	} while (!err && klat_goes_on(worker, &i));
	spoke->owner.counts.cpu_ns += klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	return err;
}
