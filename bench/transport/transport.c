/* SPDX-License-Identifier: MIT */
/*
 * Ping-pong of blocks of 32 bytes to 16 MiB between two sides.
 *
 * Timed: from before the initiator sends its block (with --touch write: writes it) until the answer
 * has arrived (with --touch read or write: is read).
 * Not timed: making the channel; the pause that keeps spinners below the real-time limit.
 *
 * Traps:
 * - A transport that passes a descriptor seems to be independent of the size, because nobody
 * touches the block. --touch says what is done with the block.
 * - Half of a round trip is a one-way latency only if both directions are alike. Here they are.
 * - A rate generator that waits for a late answer hides the delay of the messages that it did not
 *   send. So --rate counts from the time at which each message was due.
 */
#include "transport.h"

#include "fragments.h"
#include "inet.h"
#include "pattern.h"
#include "ring.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SILENCE_MS 5000
/* At a lower rate the responder would spin too long between two messages. */
#define LOWEST_SPIN_RATE 50

static const struct transport *const transports[] = {
	&thread_pointer, &shm_zero_copy, &shm_copy, &pipe_transport,
	&unix_transport, &tcp,           &udp,      &multicast,
};
const char *const transport_names[] = { "thread-pointer",
					"shm-zero-copy",
					"shm-copy",
					"pipe",
					"unix",
					"tcp",
					"udp",
					"multicast",
					NULL };
static const char *const peers[] = { "auto", "thread", "process", "netns", "remote", NULL };

struct options options = { .bytes = 100, .datagram = LARGEST_DATAGRAM, .wait_for = 10 };

static const struct klat_option option_table[] = {
	{ "bytes", "size of a message and of its answer", KLAT_INTEGER(bytes, SMALLEST, LARGEST) },
	{ "transport", "how a message reaches the other side",
	  KLAT_CHOICE_OF(transport, transport_names) },
	{ "peer",
	  "what the other side is: auto is a thread for thread-pointer, else a process; netns is a "
	  "process in another network namespace; remote needs --listen or --connect",
	  KLAT_CHOICE_OF(peer, peers) },
	{ "wait",
	  "how both sides wait: spin polls; block sleeps in the kernel; auto blocks if both are on "
	  "one CPU, else it spins",
	  KLAT_CHOICE(wait, "auto", "spin", "block") },
	{ "touch",
	  "who touches each block: nobody; the receiver, which reads it; or also the sender, which "
	  "writes all of it",
	  KLAT_CHOICE(touch, "none", "read", "write") },
	{ "rate",
	  "messages per second, each sent when it is due; 0: each is sent after the last answer",
	  KLAT_INTEGER(rate, 0, 10000000) },
	{ "datagram",
	  "udp, multicast: bytes in a datagram; a larger message is cut into parts with a header "
	  "of 16 bytes each",
	  KLAT_INTEGER(datagram, SMALLEST_DATAGRAM, LARGEST_DATAGRAM) },
	{ "drop-every",
	  "self-test for udp, multicast: drop one datagram in N, at random; 0 for none",
	  KLAT_INTEGER(drop_every, 0, 1000000) },
	{ "reorder-every",
	  "self-test for udp, multicast: hold one datagram in N back until the next is sent",
	  KLAT_INTEGER(reorder_every, 0, 1000000) },
	{ "duplicate-every", "self-test for udp, multicast: send one datagram in N twice",
	  KLAT_INTEGER(duplicate_every, 0, 1000000) },
	{ "listen",
	  "answer the --connect of another machine at this port; measures the turnaround here",
	  KLAT_INTEGER(listen, 1, 65535), .unrecorded = true, .argument = "PORT" },
	{ "connect", "send to the --listen of another machine", KLAT_TEXT(connect),
	  .unrecorded = true, .argument = "ADDRESS:PORT" },
	{ "wait-for",
	  "how long --listen and --connect wait for the other machine, before and during the run",
	  KLAT_INTEGER(wait_for, 1, 86400), .unrecorded = true, .argument = "SECONDS" },
	{ "interface", "multicast: the network interface (default: by address)",
	  KLAT_TEXT(interface), .unrecorded = true, .argument = "NAME" },
};

static const struct klat_metric metrics[] = {
	[ROUND_TRIP] = { "round_trip",
			 "send of the message to receipt of the answer, initiator's CPU",
			 .path_length = true, KLAT_WITHIN("ping", "initiator") },
	[HALF] = { "half", "half of the round trip: one way, if both take the same time",
		   .path_length = true,
		   .untraceable = "a half has no stamps of its own; explain round_trip" },
	[RESPONSE] = { "response", "with --rate: from the due time of the message to the answer",
		       .path_length = false,
		       .untraceable =
			       "the copy of a trace delays the next messages; explain round_trip" },
	[TURNAROUND] = { "turnaround",
			 "with --listen: receipt of the message to send of the answer",
			 .path_length = true, .taken_by = "responder" },
};

#define HMBDC "HMBDC, i7-4770K or E5-2670: "
#define QPERF "qperf over loopback: "
/* One row for each size, so that a sweep over --bytes shows them. */
#define EVERY_SIZE(params, value, about)                                                           \
	{ "half", "bytes=100;" params, value, "ns", about },                                       \
		{ "half", "bytes=1000;" params, value, "ns", about },                              \
		{ "half", "bytes=10000;" params, value, "ns", about },                             \
		{ "half", "bytes=100000;" params, value, "ns", about },                            \
		{ "half", "bytes=1000000;" params, value, "ns", about },                           \
	{                                                                                          \
		"half", "bytes=10000000;" params, value, "ns", about                               \
	}
#define ENDS(params, low, high, about)                                                             \
	{ "half", "bytes=100;" params, low, "ns", about ", lower end of a range" },                \
	{                                                                                          \
		"half", "bytes=10000000;" params, high, "ns", about ", upper end of a range"       \
	}

static const struct klat_published published[] = {
	EVERY_SIZE("transport=thread-pointer", 2000, HMBDC "about 2 us between threads"),
	EVERY_SIZE("transport=shm-zero-copy;touch=none", 1000,
		   HMBDC "below 1 us between processes at every size: a bound"),
	ENDS("transport=shm-copy", 1000, 4000000, HMBDC "100 B to 10 MB"),
	ENDS("transport=tcp;peer=process", 5000, 2000000, QPERF "100 B to 10 MB"),
	ENDS("transport=tcp;peer=remote", 60000, 90000000,
	     "qperf over a 1 Gb network: 100 B to 10 MB"),
	ENDS("transport=multicast;peer=remote", 60000, 80000000,
	     HMBDC "over a 1 Gb network, 100 B to 10 MB"),
};

const struct transport *transport_of(void)
{
	return transports[options.transport];
}

/* A default run takes a second at most on a current machine. */
static void choose_iterations(struct klat_run *run)
{
	if (options.bytes <= 100000)
		return;
	if (!run->iterations_given)
		run->iterations = options.bytes <= 1000000 ? 200 : 50;
	if (!run->warmup_given)
		run->warmup = options.bytes <= 1000000 ? 20 : 5;
}

static int parse_connect(struct klat_run *run)
{
	struct state *state = run->state;
	const char *colon = strrchr(options.connect, ':');
	char address[INET_ADDRSTRLEN];
	int64_t port;

	if (colon && colon - options.connect < (ptrdiff_t)sizeof(address) &&
	    klat_parse_number(colon + 1, 1, 65535, &port)) {
		memcpy(address, options.connect, colon - options.connect);
		address[colon - options.connect] = 0;
		state->listener.sin_family = AF_INET;
		state->listener.sin_port = htons(port);
		if (inet_pton(AF_INET, address, &state->listener.sin_addr) == 1)
			return 0;
	}
	return klat_usage(
		run, "--connect takes an IPv4 address and a port, as in 192.0.2.1:7718, not '%s'",
		options.connect);
}

static int configure_peer(struct klat_run *run)
{
	const bool remote = options.listen || options.connect;

	if (options.listen && options.connect)
		return klat_usage(run, "--listen and --connect exclude each other");
	if (options.peer != AUTO && (options.peer == REMOTE) != remote)
		return klat_usage(run, "--peer remote needs --listen or --connect");
	if (remote && run->soak)
		return klat_usage(run, "--soak: transport cannot soak with --listen or --connect");
	if (remote)
		options.peer = REMOTE;
	else if (options.peer == AUTO)
		options.peer = options.transport == THREAD_POINTER ? THREAD : PROCESS;
	if (options.transport == THREAD_POINTER && options.peer != THREAD)
		return klat_usage(run, "--transport thread-pointer needs --peer thread: to another "
				       "process an address means nothing");
	if ((remote || options.peer == NETNS) && !transport_of()->internet)
		return klat_usage(run, "--peer %s takes --transport tcp, udp or multicast",
				  peers[options.peer]);
	if (options.interface && (options.transport != MULTICAST || options.peer == NETNS))
		return klat_usage(run,
				  "--interface needs --transport multicast, without --peer netns");
	if (options.interface && (!options.interface[0] || strlen(options.interface) >= IFNAMSIZ))
		return klat_usage(run,
				  "--interface takes a name of at most %d characters, not '%s'",
				  IFNAMSIZ - 1, options.interface);
	if ((options.drop_every || options.reorder_every || options.duplicate_every) &&
	    !transport_of()->datagrams)
		return klat_usage(run, "--%s-every needs --transport udp or multicast",
				  options.drop_every      ? "drop"
				  : options.reorder_every ? "reorder"
							  : "duplicate");
	if (options.drop_every == 1)
		return klat_usage(run, "--drop-every 1 would leave no datagram");
	if (options.reorder_every == 1)
		return klat_usage(run, "--reorder-every 1 would leave no datagram to overtake");
	return options.connect ? parse_connect(run) : 0;
}

static int configure_waits(struct klat_run *run)
{
	if (options.wait == AUTO)
		options.wait = run->one_cpu && options.peer != REMOTE ? BLOCK : SPIN;
	if (run->soak && options.wait == SPIN && !options.rate)
		return klat_usage(
			run, "--soak: transport soaks with --wait block, or with --rate: otherwise "
			     "spinning sides take samples faster than klat records them");
	if (options.rate && options.listen)
		return klat_usage(run, "--rate belongs to the initiator: give it with --connect");
	if (options.wait == SPIN && options.rate && options.rate < LOWEST_SPIN_RATE)
		return klat_usage(
			run, "--rate below %d needs --wait block: a spinner cannot wait so long",
			LOWEST_SPIN_RATE);
	if (options.wait == BLOCK && klat_planted(run, "sleep"))
		return klat_usage(run, "--plant sleep needs --wait spin");
	run->distinct_cpus = options.wait == SPIN;
	return 0;
}

static int configure(struct klat_run *run)
{
	int err = configure_peer(run);

	if (err)
		return err;
	run->cpu_count = options.peer == REMOTE ? 1 : 2;
	err = configure_waits(run);
	if (err)
		return err;
	/* The error about the other machine has to come before the supervisor gives up. */
	if (options.peer == REMOTE)
		run->patience += options.wait_for;
	choose_iterations(run);
	if (options.listen) {
		klat_use_metric(run, TURNAROUND, 1);
		return 0;
	}
	klat_use_metric(run, ROUND_TRIP, 1);
	klat_use_metric(run, HALF, 1);
	if (options.rate)
		klat_use_metric(run, RESPONSE, 1);
	return 0;
}

static size_t whole_pages(size_t size)
{
	return (size + PAGE - 1) & ~(size_t)(PAGE - 1);
}

/* Each side has a block to send, a block to receive into, and a ring to send through. */
static int map_region(struct klat_run *run)
{
	const struct transport *transport = transport_of();
	struct state *state = run->state;
	size_t block = whole_pages(options.bytes),
	       ring = transport->ring_size ? whole_pages(transport->ring_size()) : 0;
	/* A datagram in the place of the last part may be longer than that part. */
	size_t slack = transport->datagrams ? whole_pages(LARGEST_DATAGRAM) : 0;
	size_t each = block * (1 + transport->copies) + slack + ring;
	char *next;

	next = mmap(NULL, 2 * each, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (next == MAP_FAILED)
		return klat_error(run, errno, "cannot map %zu bytes for the messages: %m",
				  2 * each);
	/* Fault the pages in now, not in the timed part. */
	memset(next, 0, 2 * each);
	state->region = next;
	state->region_size = 2 * each;
	for (int i = 0; i < 2; i++, next += each) {
		struct side *side = &state->sides[i];

		side->outgoing = next;
		side->incoming = transport->copies ? next + block : NULL;
		if (ring) {
			side->ring_out = (struct ring *)(next + each - ring);
			ring_begin(side->ring_out);
			state->sides[!i].ring_in = side->ring_out;
		}
		pattern_write(side->outgoing, options.bytes, pattern_base(0, i));
	}
	return 0;
}

/* With BBR, TCP waits for timers of its own between the packets of a message. */
static bool uses_bbr(const struct side *side)
{
	char name[16] = "";
	socklen_t size = sizeof(name);

	return !getsockopt(side->out, IPPROTO_TCP, TCP_CONGESTION, name, &size) &&
	       !strncmp(name, "bbr", 3);
}

static int setup(struct klat_run *run)
{
	static const char *const names[] = { "initiator", "responder" };
	struct state *state = run->state;
	int64_t pacing_timers;
	int err;

	for (int i = 0; i < 2; i++) {
		struct side *side = &state->sides[i];

		side->run = run;
		side->transport = transport_of();
		side->index = side->random = i;
		side->name = names[i];
		side->in = side->out = state->namespaces[i] = -1;
		side->limit_ms = options.peer == REMOTE ? options.wait_for * 1000 : SILENCE_MS;
		side->limit = klat_ns_to_ticks(run, side->limit_ms * 1000000);
		side->turn = klat_ns_to_ticks(run, KLAT_SPIN_NS);
		fragments_prepare(side);
	}
	state->control = -1;
	err = map_region(run);
	if (!err && transport_of()->beat_ms)
		err = beat_prepare(run);
	if (!err && options.peer == REMOTE)
		err = remote_meet(run);
	if (!err && transport_of()->open)
		err = transport_of()->open(run);
	if (err)
		return err;
	if (!options.listen)
		klat_worker_add(run, KLAT_WORKER(names[INITIATOR], .body = ping));
	if (!options.connect)
		klat_worker_add(run, KLAT_WORKER(names[RESPONDER], .body = pong,
						 .place = run->cpu_count - 1));
	pacing_timers = uses_bbr(&state->sides[INITIATOR]) ? options.bytes / 16384 : 0;
	klat_for_each_worker(worker, run) {
		/* In a process with several threads, each call counts references to its file. */
		worker->process = options.peer != THREAD;
		worker->woken = options.peer != REMOTE;
		/* A spinner sometimes sleeps on a lock of the kernel, for example of a pipe. */
		worker->sleeps = options.wait == BLOCK ? KLAT_MOSTLY : KLAT_RARELY;
		/* Each part of a long message, and each repair, can end a sleep. On a unix socket,
		 * each read also wakes the peer: there is space to write again. */
		worker->most_sleeps = 1 + options.bytes / 16384 +
				      (options.drop_every || options.reorder_every ? 3 : 0) +
				      (options.transport == UNIX);
		worker->kernel_threads = options.transport >= TCP;
		worker->timers = pacing_timers;
	}
	return 0;
}

const struct klat_benchmark klat_benchmark = {
	.name = "transport",
	.summary = "ping-pong of messages by size, through memory or the kernel",
	.description =
		"An initiator sends a message, and a responder answers with one of the same size. "
		"Each round trip is timed on the initiator's CPU. half is half of it, as other "
		"programs print it. thread-pointer and shm-zero-copy pass only a descriptor of the "
		"block. With --touch none neither side reads the block, so its size has no effect. "
		"--touch read and write add the program's work on the data to the timed part. klat "
		"checks the number of every message. With --touch read or write it also checks all "
		"bytes of every message, else only those of the last message, and in a soak those "
		"of a few answers.\n\n"
		"Spinning sides poll and never sleep; blocking sides sleep for every message. The "
		"evidence shows both. With --rate, messages are due at fixed times, and response "
		"counts from the due time, so a delay shows in all messages that it delays. The "
		"run is invalid if it does not keep the rate.\n\n"
		"Without --iterations, messages above 100,000 bytes are sent 200 times, those "
		"above 1,000,000 bytes 50 times.",
	.examples =
		"transport\ta pointer from thread to thread\n"
		"transport --transport shm-zero-copy --bytes 10000000\ta descriptor between "
		"processes\n"
		"transport --transport pipe --bytes 10000 --touch write --wait block\twritten, "
		"sent through a pipe, read\n"
		"transport --transport unix --wait block --rate 1000\tlatency under a fixed load",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	.state_size = sizeof(struct state),
	.soaks = true,
	/* verify() reads nothing but the two tallies. */
	.counts_at = offsetof(struct state, sides[0].tally),
	.counts_size = offsetof(struct state, sides[1].tally) + sizeof(struct tally) -
		       offsetof(struct state, sides[0].tally),
	.needs_frequency = true,
	.faults = { "corrupt", "sleep" },
	.configure = configure,
	.setup = setup,
	.verify = verify_messages,
};
