/* SPDX-License-Identifier: MIT */
/*
 * IP multicast with repair on request, based on NAKs as in PGM (RFC 3208) and NORM (RFC 5740).
 * Their libraries run a thread and a rate limit of their own, which would dominate the samples.
 * Each side receives on its own port of the group and sends to the port of the other.
 *
 *   DATA    a part of a message, as fragments.h cuts it.
 *   REPAIR  the same part, sent again.
 *   NAK     sent by a receiver that misses parts: `index` is the first one, the upper bits of
 * `kind` are their number. A later part shows that parts are missing, and the receiver then sends
 *           one NAK. After that, or if the last parts are missing, a STATUS makes it send another.
 *   STATUS  "I have sent all of this message." The initiator sends one after every STATUS_MS of
 *           silence. A receiver that misses parts of that message sends NAKs. A responder that has
 *           answered it sends a STATUS of its answer, and the initiator then asks for the answer.
 *
 * The next STATUS repairs a lost part or NAK, and also a lost STATUS. An answer acknowledges its
 * message, so a sender keeps only one message. A sample contains the repair, as in a real program.
 */
#include "fragments.h"
#include "inet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define STATUS_MS 10
#define GROUP "239.255.77.17" /* organization-local scope, RFC 2365 */

static int send_multicast(struct side *side, uint64_t word)
{
	side->sent_word = word;
	side->tally.bytes_sent += options.bytes;
	return fragments_send(side, word);
}

static int ask_for(struct side *side, uint64_t word, uint32_t first, uint32_t count)
{
	return fragment_send(side, word, NAK | count << KIND_BITS, first);
}

/* Every run of missing parts. */
static int ask_for_missing(struct side *side, uint64_t word)
{
	const uint32_t count = side->parts;
	int err = 0;

	for (uint32_t first = side->next_part; first < count && !err;) {
		uint32_t end = fragment_next(side, first, true);

		err = ask_for(side, word, first, end - first);
		first = fragment_next(side, end, false);
	}
	side->expected_part = count;
	return err;
}

static int repair(struct side *side, const struct fragment *nak)
{
	const uint32_t count = side->parts, wanted = nak->kind >> KIND_BITS;
	int err = 0;

	if (nak->word != side->sent_word)
		return 0;
	for (uint32_t i = nak->index; i < count && i - nak->index < wanted && !err; i++) {
		side->tally.resent++;
		err = fragment_send(side, nak->word, REPAIR, i);
	}
	return err;
}

static bool is_awaited(const struct side *side, uint64_t word)
{
	return side->index == INITIATOR ? word == side->sent_word
					: (word & WORD_NUMBER) == side->awaited;
}

static int on_part(struct side *side, const struct fragment *header, size_t size)
{
	uint32_t expected;

	if (!is_awaited(side, header->word)) {
		side->tally.outdated++;
		return 0;
	}
	if (header->word != side->gathered_word)
		fragments_begin(side, header->word);
	expected = side->expected_part;
	if (!fragment_take(side, header, size) || header->index < expected)
		return 0;
	side->expected_part = header->index + 1;
	return header->index > expected
		       ? ask_for(side, header->word, expected, header->index - expected)
		       : 0;
}

static int on_status(struct side *side, const struct fragment *header)
{
	if (is_awaited(side, header->word)) {
		if (header->word != side->gathered_word)
			fragments_begin(side, header->word);
		return ask_for_missing(side, header->word);
	}
	if (side->index == RESPONDER && header->word == side->sent_word)
		return fragment_send(side, side->sent_word, STATUS, 0);
	return 0;
}

static int on_silence(struct side *side, int64_t silent_ms)
{
	if (has_left(side))
		return side->lingers ? -ECANCELED : say_gone(side);
	if (silent_ms >= side->limit_ms)
		return say_silent(side, "datagram");
	return side->index == INITIATOR ? fragment_send(side, side->sent_word, STATUS, 0) : 0;
}

static int on_datagram(struct side *side, const struct fragment *header, size_t size)
{
	switch (header->kind % (1 << KIND_BITS)) {
	case DATA:
	case REPAIR:
		return on_part(side, header, size);
	case STATUS:
		return on_status(side, header);
	case NAK:
		return repair(side, header);
	default:
		return 0;
	}
}

static int receive_multicast(struct side *side, struct message *message)
{
	struct patience patience = { .limit = side->run->counter_khz * STATUS_MS };
	int err = 0;

	fragments_begin(side, side->index == RESPONDER ? 0 : side->sent_word);
	while (!fragments_complete(side) && !err) {
		const uint32_t gathered = side->gathered;
		struct fragment header;
		ssize_t size = fragment_receive(side, &header);

		if (size == -EAGAIN) {
			err = falls_silent(side, &patience)
				      ? on_silence(side, silent_for_ms(side, &patience))
				      : 0;
		} else if (size <= 0) {
			err = size;
		} else {
			patience.since = 0;
			err = on_datagram(side, &header, size);
		}
		/* NAKs and STATUS messages alone could go back and forth for ever. */
		if (side->gathered != gathered)
			patience.quiet = 0;
	}
	message->word = side->gathered_word;
	message->data = side->incoming;
	side->tally.bytes_received += err ? 0 : options.bytes;
	return err;
}

static int64_t status_ms(void)
{
	return STATUS_MS;
}

/* The name of the interface, from --interface or from an address of the interface. */
static int find_interface(struct klat_run *run, struct in_addr address, char name[IFNAMSIZ])
{
	struct ifaddrs *interfaces;

	if (options.interface) {
		snprintf(name, IFNAMSIZ, "%s", options.interface);
		return 0;
	}
	if (getifaddrs(&interfaces))
		return klat_error(run, errno, "cannot list the network interfaces: %m");
	name[0] = 0;
	for (const struct ifaddrs *at = interfaces; at; at = at->ifa_next) {
		struct sockaddr_in own;

		if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET)
			continue;
		memcpy(&own, at->ifa_addr, sizeof(own));
		if (own.sin_addr.s_addr == address.s_addr)
			snprintf(name, IFNAMSIZ, "%s", at->ifa_name);
	}
	freeifaddrs(interfaces);
	if (!name[0])
		return klat_skip(run,
				 "no network interface that is up has the address %s; choose one "
				 "with --interface",
				 inet_ntoa(address));
	return 0;
}

static int check_interface(struct klat_run *run, int fd, const char *name)
{
	struct ifreq request = { 0 };

	snprintf(request.ifr_name, IFNAMSIZ, "%s", name);
	if (ioctl(fd, SIOCGIFFLAGS, &request))
		return klat_error(run, errno, "cannot use the network interface '%s': %m", name);
	if (!(request.ifr_flags & IFF_UP))
		return klat_skip(run, "the network interface %s is down", name);
	/* The loopback does multicast without the flag. */
	if (!(request.ifr_flags & (IFF_MULTICAST | IFF_LOOPBACK)))
		return klat_skip(run,
				 "the network interface %s does no multicast; choose another with "
				 "--interface",
				 name);
	return 0;
}

/* A socket that sends to the group through the right interface, and one that receives from it. */
static int make_side(struct klat_run *run, int index, struct sockaddr_in *name)
{
	struct state *state = run->state;
	struct side *side = &state->sides[index];
	struct ip_mreqn membership = { .imr_address = state->addresses[index] };
	char interface[IFNAMSIZ];
	int err;

	inet_pton(AF_INET, GROUP, &membership.imr_multiaddr);
	side->out = inet_socket(run, index, SOCK_DGRAM, state->addresses[index]);
	if (side->out < 0)
		return side->out;
	side->in = inet_socket(run, index, SOCK_DGRAM, membership.imr_multiaddr);
	if (side->in < 0)
		return side->in;
	err = find_interface(run, state->addresses[index], interface);
	err = err ?: check_interface(run, side->out, interface);
	if (err)
		return err;
	membership.imr_ifindex = if_nametoindex(interface);
	if (setsockopt(side->in, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof(membership)))
		return klat_error(run, errno, "cannot join the group " GROUP " on %s: %m",
				  interface);
	if (setsockopt(side->out, IPPROTO_IP, IP_MULTICAST_IF, &membership, sizeof(membership)))
		return klat_error(run, errno, "cannot send to a group through %s: %m", interface);
	inet_make_room(side->in);
	err = inet_set_wait(run, side->in);
	err = err ?: inet_set_wait(run, side->out);
	return err ? err : inet_name(run, side->in, name);
}

static int make_multicast(struct klat_run *run)
{
	struct state *state = run->state;
	const int self = options.listen ? RESPONDER : INITIATOR;
	struct sockaddr_in names[2];
	int err;

	if (options.peer == REMOTE) {
		err = make_side(run, self, &names[self]);
		names[!self] = names[self];
		err = err ?: remote_exchange(run, names[self].sin_port, &names[!self].sin_port);
		return err ? err : inet_connect(run, state->sides[self].out, &names[!self]);
	}
	err = make_side(run, INITIATOR, &names[INITIATOR]);
	err = err ?: make_side(run, RESPONDER, &names[RESPONDER]);
	for (int i = 0; i < 2 && !err; i++)
		err = inet_connect(run, state->sides[i].out, &names[!i]);
	return err;
}

static int open_multicast(struct klat_run *run)
{
	return inet_make(run, make_multicast);
}

const struct transport multicast = { .copies = true,
				     .datagrams = true,
				     .internet = true,
				     .beat_ms = status_ms,
				     .open = open_multicast,
				     .send = send_multicast,
				     .receive = receive_multicast };
