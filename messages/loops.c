/* SPDX-License-Identifier: MIT */
/*
 * Messages to a queue whose owner handles them. Timed: a hop, from before the message is made to
 * after it is handled and freed. In one thread a hop is one sample. Between threads the hub sends a
 * message to a spoke, which answers:
 *
 *     hub:   sent ... got
 *     spoke: taken, answered
 *
 * One hop is ((taken-sent)+(got-answered))/2: a constant offset between the two CPUs' counters
 * cancels. Not timed: what the spoke does between taken and answered.
 *
 * Traps:
 * - The owner of a queue that is never empty never sleeps. "With a wakeup" then means only the cost
 *   of the system call. So the evidence counts the waits.
 * - A pass of a loop arms a timer, takes its lock and allocates memory for each message. These cost
 *   more than the queue. So each is an option.
 */
#include "messages.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

static bool timer_is_armed(const struct owner *owner)
{
	struct itimerspec left;

	return !timerfd_gettime(owner->timer, &left) && left.it_value.tv_sec;
}

/* The message stays in the thread's own queue until the next pass of the loop. */
int loner(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	struct owner *owner = &state->hub;
	uint64_t *hop = klat_series(run, HOP, 0);
	int64_t before = 0;
	int err = 0;

	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		struct message *message;
		uint64_t begin;

		if (klat_iteration(worker, i))
			before = klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
		klat_rest(worker);
		begin = klat_stamp_begin();
		klat_inject(run, i);
		message = message_make(&state->costs, &state->message);
		if (!message)
			return -ENOMEM;
		queue_push(&owner->queue, message);
		if (o->mode != CALL)
			err = sync_post(&owner->wake);
		if (!err)
			err = owner_pass(owner);
		if (!err && o->mode == PASS_EPOLL)
			err = owner_wait(owner);
		message_free(&state->costs, queue_take(&owner->queue));
		hop[i] = klat_stamp_end(worker) - begin;
		state->ticks += klat_is_sample(run, i) ? hop[i] : 0;
		state->handled += i >= -run->lead;
		owner->handled++;
	}
	state->cpu_ns = klat_clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
	state->timer_armed = state->costs.timer && timer_is_armed(owner);
	if (o->mode == PASS_WRITE && !err &&
	    read(owner->wake.fds[0], &state->unread, sizeof(state->unread)) < 0)
		err = -errno;
	return err;
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
	message->thread = spoke - spokes;
	message->round = spoke->round;
	message->sent = sent;
	return owner_send(&spoke->owner, message);
}

/* The hub holds every message, so none is under way during the sleep. */
static int rest_and_release(struct klat_worker *worker)
{
	const struct options *o = worker->run->options;
	struct state *state = worker->state;
	int err = 0;

	state->hub.rested = __atomic_add_fetch(&state->costs.resting, 1, __ATOMIC_RELAXED);
	klat_sleep(worker, KLAT_REST_NS);
	for (int64_t t = 0; t < o->threads && !err; t++)
		if (spokes[t].held) {
			spokes[t].held = false;
			err = bounce(worker, &spokes[t]);
		}
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
	*from = &spokes[answer.thread];
	state->mismatches += answer.round != (*from)->round;
	klat_series(run, HOP, answer.thread)[answer.round - 1 + klat_first(run)] =
		((answer.taken - answer.sent) + (*got - answer.answered)) / 2;
	return 0;
}

/*
 * The hub sends each spoke a message, and another one after each answer. When a sleep is due, the
 * hub holds the messages until all answers have come.
 */
int hub(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	const uint64_t rest_every = klat_ns_to_ticks(run, KLAT_SPIN_NS);
	/* Stamps of the last answers of the warm-up, of the timed part and of the tail. */
	uint64_t got[3] = { 0 }, awake_since = klat_stamp_begin(), rested = 0;
	const int64_t timed = run->iterations * o->threads;
	int64_t held = 0, left = o->threads, handled = klat_first(run) * o->threads;
	int err = 0;

	state->hub.worker = worker;
	for (int64_t t = 0; t < o->threads && !err; t++) {
		spokes[t].round++;
		err = bounce(worker, &spokes[t]);
	}
	while (left && !err) {
		struct spoke *spoke;

		if (handled % o->threads == 0 && klat_iteration(worker, handled / o->threads))
			state->cpu_ns -= klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
		handled++;
		err = handle_answer(worker, &spoke, &got[(handled > 0) + (handled > timed)]);
		if (err)
			break;
		if (spoke->round == klat_made(run)) {
			left--;
		} else {
			spoke->round++;
			spoke->held = klat_stamp_begin() - awake_since > rest_every;
			held += spoke->held;
			if (!spoke->held)
				err = bounce(worker, spoke);
		}
		if (held && held == left && !err) {
			uint64_t since = klat_stamp_begin();

			err = rest_and_release(worker);
			held = 0;
			awake_since = klat_stamp_begin();
			rested +=
				klat_is_sample(run, handled / o->threads) ? awake_since - since : 0;
		}
	}
	state->cpu_ns += klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	state->ticks = got[1] - got[0] - rested;
	state->handled += handled + run->lead * o->threads;
	state->timer_armed = state->costs.timer && timer_is_armed(&state->hub);
	return err;
}

int spoke_thread(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct spoke *spoke = &spokes[worker->index];
	int err = 0;

	spoke->owner.worker = worker;
	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		struct message *message, answer;

		if (klat_iteration(worker, i))
			spoke->cpu_ns = -klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
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
	spoke->cpu_ns += klat_clock_ns(CLOCK_THREAD_CPUTIME_ID);
	return err;
}
