/* SPDX-License-Identifier: MIT */
/*
 * A thread of high priority (H) blocks in read() on a tun device. A thread of low priority (L)
 * spins on the same CPU and reads the counter in each turn. A client sends the packets.
 *
 * Timed: from L's last stamp to H's return from read(). This includes the interrupt, the wakeup and
 * the preemption. Both stamps are on one CPU. Also timed: from the client's stamp before send() to
 * the same return. Not timed: H's way back to sleep; the client's wait for L.
 *
 * Traps:
 * - A packet that arrives while L rests or while H is busy does not preempt L. So the client waits
 *   until L announces that it spins. After each packet L checks that H preempted it.
 * - Other packets reach the device: strays. The program counts them, and none is a sample.
 */
#include "network.h"

#include "datagram.h"
#include "pause.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* With --remote, L reads the clock once in this many turns: about every 100 us. */
#define TURNS 4096
/* Consider a datagram lost if H has not read it within this time. */
#define LOST_NS 100000000
#define MAX_ATTEMPTS 8
/*
 * Pause between L's announcement and send(). It covers several turns of L. Its random part
 * prevents the client and L from running in step.
 */
#define SETTLE_NS 2000
#define SETTLE_RANDOM_NS 8000
/* The client's sleep on one CPU. */
#define NAP_NS 50000
#define NAP_RANDOM_NS 16384

/* Warm-up iterations are negative; generations begin at 1. The laps of a soak count on. */
static uint32_t generation_of(const struct klat_worker *worker, int64_t i)
{
	const struct klat_run *run = worker->run;

	return worker->laps * run->iterations + i + run->warmup + 1;
}

/* The low thread */

static int give_up(struct klat_worker *worker)
{
	const struct state *state = worker->state;
	char forwards[2] = "";

	klat_read_small("/proc/sys/net/ipv4/ip_forward", forwards, sizeof(forwards));
	return klat_error(worker->run, ETIMEDOUT,
			  "no packet could be measured for %lld s, after %lld of %lld (%lld came "
			  "while the spinner did not run, %lld were stray): %s",
			  (long long)options.wait_for,
			  (long long)(worker->iteration + worker->run->warmup),
			  (long long)klat_made(worker->run),
			  (long long)__atomic_load_n(&state->counts.unspun, __ATOMIC_RELAXED),
			  (long long)__atomic_load_n(&state->counts.strays, __ATOMIC_RELAXED),
			  forwards[0] == '0' ? "net.ipv4.ip_forward is 0 here, see --help"
					     : "is network/client sending, and is its route set?");
}

static void announce(struct state *state, uint32_t generation)
{
	__atomic_store_n(&state->last, klat_stamp_begin(), __ATOMIC_RELAXED);
	__atomic_store_n(&state->announced, generation, __ATOMIC_RELEASE);
}

/*
 * Spin until H has read the packet. In the private network the client limits the wait. With
 * --remote L limits it, and rests meanwhile.
 */
static int spin_until_read(struct klat_worker *worker, uint32_t generation, bool yields)
{
	const int64_t deadline =
		klat_clock_ns(CLOCK_MONOTONIC_COARSE) + options.wait_for * KLAT_NS_PER_S;
	struct state *state = worker->state;

	for (uint32_t turn = 1; __atomic_load_n(&state->done, __ATOMIC_ACQUIRE) != generation;
	     turn++) {
		__atomic_store_n(&state->last, klat_stamp_begin(), __ATOMIC_RELAXED);
		if (__builtin_expect(yields, 0))
			klat_nap(50000);
		if (!options.remote || turn % TURNS)
			continue;
		__atomic_store_n(&state->announced, 0, __ATOMIC_RELAXED);
		klat_rest(worker);
		announce(state, generation);
		if (klat_clock_ns(CLOCK_MONOTONIC_COARSE) > deadline)
			return give_up(worker);
	}
	return 0;
}

int spin_for_packets(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const bool yields = klat_planted(run, "yield");
	struct state *state = worker->state;
	int err = 0;

	for (int64_t i = klat_first(run); !err && klat_next(worker, &i); i++) {
		int64_t switches = klat_thread_usage().ru_nivcsw;

		announce(state, generation_of(worker, i));
		err = spin_until_read(worker, generation_of(worker, i), yields);
		klat_stamp_end(worker); /* checks the CPU */
		switches = klat_thread_usage().ru_nivcsw - switches;
		/* On one CPU the client preempts L, too. With --remote, L may rest meanwhile. */
		if (klat_is_sample(run, i) && state->spun &&
		    (run->one_cpu ? switches > 0 : switches == 1))
			state->counts.preempted++;
	}
	return err;
}

/* The high thread */

/* The datagram in an IPv4 packet from the device, or false for a stray. */
static bool find_datagram(const char *packet, size_t size, struct datagram *datagram)
{
	struct iphdr ip;
	struct udphdr udp;
	size_t header;

	if (size < sizeof(ip))
		return false;
	memcpy(&ip, packet, sizeof(ip));
	header = ip.ihl * 4;
	if (ip.version != 4 || header < sizeof(ip) || ip.protocol != IPPROTO_UDP ||
	    (ntohs(ip.frag_off) & (IP_OFFMASK | IP_MF)) ||
	    size < header + sizeof(udp) + sizeof(*datagram))
		return false;
	memcpy(&udp, packet + header, sizeof(udp));
	memcpy(datagram, packet + header + sizeof(udp), sizeof(*datagram));
	return ntohs(udp.dest) == options.port && ntohl(datagram->magic) == DATAGRAM_MAGIC;
}

/* Each gap in the sender's numbers is a lost packet. A late packet fills its gap. */
static void follow_numbering(struct state *state, const struct datagram *datagram)
{
	uint32_t sequence = ntohl(datagram->sequence);
	int32_t ahead = sequence - state->next;

	if (ntohl(datagram->stream) != state->stream) {
		state->stream = ntohl(datagram->stream);
		ahead = 0;
	}
	if (ahead >= 0)
		state->next = sequence + 1;
	state->counts.lost += ahead >= 0 ? ahead : -1;
}

/* Whether H has just read the packet of this generation. */
static bool accept_packet(struct klat_run *run, uint32_t generation, const char *packet,
			  size_t size, bool spun, struct datagram *datagram)
{
	struct state *state = run->state;

	if (!find_datagram(packet, size, datagram) ||
	    (!options.remote && (ntohl(datagram->stream) != state->stream ||
				 ntohl(datagram->sequence) != generation))) {
		__atomic_fetch_add(&state->counts.strays, 1, __ATOMIC_RELAXED);
		return false;
	}
	if (!options.remote)
		return true;
	follow_numbering(state, datagram);
	__atomic_fetch_add(&state->counts.unspun, !spun, __ATOMIC_RELAXED);
	return spun;
}

int read_packets(struct klat_worker *worker)
{
	struct klat_run *run = worker->run;
	struct state *state = worker->state;
	uint64_t *from_spinner = klat_series(run, metric_of_spinner(run), 0),
		 *send_to_read = klat_series(run, SEND_TO_READ, 0), last = 0;

	for (int64_t i = klat_first(run); klat_next(worker, &i); i++) {
		const uint32_t generation = generation_of(worker, i);
		struct datagram datagram;
		uint64_t end;
		int64_t strays;
		char packet[2048];
		ssize_t size;
		bool spun;

		do {
			const uint64_t seen = last;

			size = read(state->tun_fd, packet, sizeof(packet));
			if (size < 0)
				return -errno;
			klat_inject(run, i);
			end = klat_stamp_end(worker);
			/* L does not run now, so its words do not change. L spun for this packet
			 * only if it made a turn after H's last return. */
			last = __atomic_load_n(&state->last, __ATOMIC_RELAXED);
			spun = last != seen &&
			       __atomic_load_n(&state->announced, __ATOMIC_ACQUIRE) == generation;
		} while (!accept_packet(run, generation, packet, size, spun, &datagram));
		/* H sleeps for each stray, too. */
		strays = __atomic_load_n(&state->counts.strays, __ATOMIC_RELAXED);
		worker->most_sleeps = strays ? 2 + strays / (i > 0 ? i : 1) : 1;
		from_spinner[i] = end - last;
		if (send_to_read)
			send_to_read[i] = end - datagram.start;
		/* Without priorities, L may write a stamp after H's stamp. */
		state->spun = spun && last < end;
		__atomic_store_n(&state->done, generation, __ATOMIC_RELEASE);
	}
	return 0;
}

/* The client */

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
		state->counts.lost++;
	}
	return klat_error(worker->run, ETIMEDOUT, "%d datagrams in a row were not read",
			  MAX_ATTEMPTS);
}

/* L announced before the last sleep, so it spun during that sleep. */
static void nap_until_announced(const struct state *state, uint32_t generation, uint64_t *seed)
{
	bool announced;

	do {
		announced = __atomic_load_n(&state->announced, __ATOMIC_ACQUIRE) == generation;
		klat_nap(NAP_NS + klat_draw(seed) % NAP_RANDOM_NS);
	} while (!announced);
}

/* On one CPU the client sleeps until L spins. On a CPU of its own it spins too. */
int send_packets(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct datagram datagram = { .magic = htonl(DATAGRAM_MAGIC),
				     .stream = htonl(state->stream) };
	const struct klat_pause settle = klat_pause_prepare(run, SETTLE_NS, SETTLE_RANDOM_NS);
	const uint64_t lost_ticks = klat_ns_to_ticks(run, LOST_NS);
	const uint64_t *send_to_read = klat_series(run, SEND_TO_READ, 0);
	uint64_t seed = state->stream, sent = 0;
	int err = 0;

	for (int64_t i = klat_first(run); !err && klat_next(worker, &i); i++) {
		const uint32_t generation = generation_of(worker, i);

		if (run->one_cpu) {
			nap_until_announced(state, generation, &seed);
		} else {
			klat_rest(worker);
			err = klat_spin_until(worker, &state->announced, generation);
			klat_pause(&settle, &seed);
		}
		err = err ?: send_until_read(worker, &datagram, generation, lost_ticks, &sent);
		if (run->one_cpu && klat_is_sample(run, i) && !err &&
		    __atomic_load_n(&state->done, __ATOMIC_ACQUIRE) == generation &&
		    send_to_read[i] < sent - datagram.start)
			state->counts.overtaken++;
	}
	return err;
}
