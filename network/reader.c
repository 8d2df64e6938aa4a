/* SPDX-License-Identifier: MIT */
/*
 * The thread of high priority (H). It blocks in read() on the tun device and takes the end stamp of
 * each sample.
 */
#include "network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <string.h>
#include <unistd.h>

/* The datagram in an IPv4 packet from the device, or false for a stray. */
static bool find_datagram(const struct options *o, const char *packet, size_t size,
			  struct datagram *datagram)
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
	return ntohs(udp.dest) == o->port && ntohl(datagram->magic) == DATAGRAM_MAGIC;
}

/* A gap in the sender's numbering is a lost packet. A late packet fills its gap. */
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
	state->lost += ahead >= 0 ? ahead : -1;
}

/* Whether H has just read the packet of this generation. */
static bool accept_packet(struct klat_run *run, uint32_t generation, const char *packet,
			  size_t size, bool spun, struct datagram *datagram)
{
	const struct options *o = run->options;
	struct state *state = run->state;

	if (!find_datagram(o, packet, size, datagram) ||
	    (!o->remote && (ntohl(datagram->stream) != state->stream ||
			    ntohl(datagram->sequence) != generation))) {
		__atomic_fetch_add(&state->strays, 1, __ATOMIC_RELAXED);
		return false;
	}
	if (!o->remote)
		return true;
	follow_numbering(state, datagram);
	__atomic_fetch_add(&state->unspun, !spun, __ATOMIC_RELAXED);
	return spun;
}

/*
 * Whether L was spinning for this packet, and made a turn since H last returned. L does not run
 * now, so its words do not change.
 */
static bool low_spun(struct state *state, uint32_t generation, uint64_t last)
{
	bool turned = last != state->seen;

	state->seen = last;
	return turned && __atomic_load_n(&state->announced, __ATOMIC_ACQUIRE) == generation &&
	       !__atomic_load_n(&state->resting, __ATOMIC_RELAXED);
}

int read_packets(struct klat_worker *worker)
{
	struct klat_run *run = worker->run;
	struct state *state = worker->state;
	uint64_t *wakeup = klat_series(run, WAKEUP, 0),
		 *send_to_read = klat_series(run, SEND_TO_READ, 0);

	for (int64_t i = klat_first(run); i < klat_end(run); i++) {
		const uint32_t generation = generation_of(run, i);
		struct datagram datagram;
		uint64_t last, end;
		char packet[2048];
		ssize_t size;
		bool spun;

		klat_iteration(worker, i);
		do {
			size = read(state->tun_fd, packet, sizeof(packet));
			if (size < 0)
				return -errno;
			klat_inject(run, i);
			end = klat_stamp_end(worker);
			last = __atomic_load_n(&state->last, __ATOMIC_RELAXED);
			spun = low_spun(state, generation, last);
		} while (!accept_packet(run, generation, packet, size, spun, &datagram));
		wakeup[i] = end - last;
		if (send_to_read)
			send_to_read[i] = end - datagram.start;
		state->end = end;
		/* Without priorities, L may write a stamp after H took its own. */
		state->spun = spun && last < end;
		__atomic_store_n(&state->done, generation, __ATOMIC_RELEASE);
	}
	return 0;
}
