/* SPDX-License-Identifier: MIT */
/* The sender of the private network: one datagram for each iteration, once L spins. */
#include "network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Consider a datagram lost if H has not read it within this time. */
#define LOST_NS 100000000
#define MAX_ATTEMPTS 8
/*
 * Pause between the moment L spins and send(). It covers several turns of L. A random part keeps
 * the two from falling into step.
 */
#define SETTLE_NS 2000
#define SETTLE_RANDOM_NS 8000
/* On one CPU, the sender's sleep, and the largest number of sleeps for one packet. */
#define NAP_NS 50000
#define NAP_RANDOM_NS 16384
#define MAX_NAPS 20000

static bool is_read(const struct state *state, uint32_t generation, uint64_t lost_ticks)
{
	uint64_t begin = klat_ticks();

	while (__atomic_load_n(&state->done, __ATOMIC_ACQUIRE) != generation)
		if (klat_ticks() - begin > lost_ticks)
			return false;
	return true;
}

/*
 * Each repetition carries its own stamp, so H may read any of them. On one CPU, H reads before
 * send() returns; *sent is the stamp after it.
 */
static int send_until_read(struct klat_worker *worker, struct datagram *datagram,
			   uint32_t generation, uint64_t lost_ticks, uint64_t *sent)
{
	struct state *state = worker->state;

	datagram->sequence = htonl(generation);
	for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
		datagram->start = klat_stamp_begin();
		if (send(state->socket_fd, datagram, sizeof(*datagram), 0) < 0 && errno != ENOBUFS)
			return -errno;
		*sent = klat_stamp_end(worker);
		if (worker->run->one_cpu || is_read(state, generation, lost_ticks))
			return 0;
		state->lost++;
	}
	return klat_error(worker->run, ETIMEDOUT, "%d datagrams in a row were not read",
			  MAX_ATTEMPTS);
}

/* Sleep until L spins for this generation. */
static int nap_until_announced(struct state *state, uint32_t generation, uint64_t *seed)
{
	for (int nap = 0; nap < MAX_NAPS; nap++) {
		bool announced =
			__atomic_load_n(&state->announced, __ATOMIC_ACQUIRE) == generation &&
			!__atomic_load_n(&state->resting, __ATOMIC_RELAXED);

		klat_nap(NAP_NS + klat_draw(seed) % NAP_RANDOM_NS);
		/* L announced before this sleep, so it spun during the sleep. */
		if (announced)
			return 0;
	}
	return -ETIMEDOUT;
}

/* On one CPU the sender sleeps until L spins. On a CPU of its own it spins too. */
int send_packets(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct datagram datagram = { .magic = htonl(DATAGRAM_MAGIC),
				     .stream = htonl(state->stream) };
	const uint64_t settle = klat_ns_to_ticks(run, SETTLE_NS),
		       settle_random = klat_ns_to_ticks(run, SETTLE_RANDOM_NS),
		       lost_ticks = klat_ns_to_ticks(run, LOST_NS);
	uint64_t seed = state->stream, sent = 0;
	int err = 0;

	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		const uint32_t generation = generation_of(run, i);

		klat_iteration(worker, i);
		if (run->one_cpu) {
			err = nap_until_announced(state, generation, &seed);
		} else {
			klat_rest(worker);
			err = klat_spin_until(worker, &state->announced, generation);
			klat_spin(settle + klat_draw(&seed) % settle_random);
		}
		if (!err)
			err = send_until_read(worker, &datagram, generation, lost_ticks, &sent);
		if (run->one_cpu && klat_is_sample(run, i) && !err &&
		    __atomic_load_n(&state->done, __ATOMIC_ACQUIRE) == generation &&
		    datagram.start < state->end && state->end < sent)
			state->overtaken++;
	}
	return err;
}
