/* SPDX-License-Identifier: MIT */
/*
 * Ping-pong of blocks of 32 bytes to 16 MiB between two sides. Timed: from before the initiator
 * hands its block over (with --touch write: writes it) to after the answer is there (is read).
 * Not timed: making the channel, and the pause that keeps spinners below the real-time limit. The
 * traps: a transport that hands over a descriptor looks as if size cost nothing, for nobody
 * touches the block, so --touch says what is done with it; half of a round trip is no one-way
 * latency unless both directions are alike, which here they are; and a rate generator that waits
 * for a late answer hides the delay of what it did not send, so that --rate counts from the time
 * at which each message was due.
 */
#include "transport.h"

#include "fragments.h"
#include "inet.h"
#include "pattern.h"
#include "ring.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	ROUND_TRIP,
	HALF,
	RESPONSE,
	TURNAROUND
};

#define SILENCE_MS 5000
/* A lower rate would have the responder spin for longer than that between two messages. */
#define LOWEST_SPIN_RATE 50
#define PAGE 4096

static const struct transport *const transports[] = {
	&thread_pointer, &shm_zero_copy, &shm_copy, &pipe_transport,
	&unix_transport, &tcp,           &udp,      &multicast,
};
static const char *const transport_names[] = { "thread-pointer",
					       "shm-zero-copy",
					       "shm-copy",
					       "pipe",
					       "unix",
					       "tcp",
					       "udp",
					       "multicast",
					       NULL };
static const char *const peers[] = { "auto", "thread", "process", "netns", "remote", NULL };
static const char *const waits[] = { "auto", "spin", "block", NULL };
static const char *const touches[] = { "none", "read", "write", NULL };

#define AT(field) offsetof(struct options, field)
static const struct klat_option options[] = {
	{ "bytes", "N", "size of a message, which each answer has, too", KLAT_INTEGER, AT(bytes),
	  SMALLEST, LARGEST, NULL, false },
	{ "transport", "thread-pointer|shm-zero-copy|shm-copy|pipe|unix|tcp|udp|multicast",
	  "how a message reaches the other side", KLAT_CHOICE, AT(transport), 0, 0, transport_names,
	  false },
	{ "peer", "auto|thread|process|netns|remote",
	  "what the other side is: auto is a thread for thread-pointer, else a process; netns a "
	  "process in another network namespace; remote goes with --listen or --connect",
	  KLAT_CHOICE, AT(peer), 0, 0, peers, false },
	{ "wait", "auto|spin|block",
	  "how both sides wait: poll, or sleep in the kernel; auto sleeps where both are on one "
	  "CPU",
	  KLAT_CHOICE, AT(wait), 0, 0, waits, false },
	{ "touch", "none|read|write",
	  "what is done with each block: nothing, read by its receiver, or also written anew by "
	  "its sender",
	  KLAT_CHOICE, AT(touch), 0, 0, touches, false },
	{ "rate", "N",
	  "messages a second, sent when they are due; 0 sends each when the last is answered",
	  KLAT_INTEGER, AT(rate), 0, 10000000, NULL, false },
	{ "datagram", "N",
	  "udp, multicast: bytes in a datagram; larger messages are cut, each part with 16 bytes "
	  "of header",
	  KLAT_INTEGER, AT(datagram), SMALLEST_DATAGRAM, LARGEST_DATAGRAM, NULL, false },
	{ "drop-every", "N",
	  "self-test for udp, multicast: leave out one datagram in N, at random; 0 for none",
	  KLAT_INTEGER, AT(drop_every), 0, 1000000, NULL, false },
	{ "reorder-every", "N",
	  "self-test for udp, multicast: hold one datagram in N back until the next is sent",
	  KLAT_INTEGER, AT(reorder_every), 0, 1000000, NULL, false },
	{ "duplicate-every", "N", "self-test for udp, multicast: send one datagram in N twice",
	  KLAT_INTEGER, AT(duplicate_every), 0, 1000000, NULL, false },
	{ "listen", "PORT",
	  "be the responder, for a --connect from another machine; measures how long each answer "
	  "takes here",
	  KLAT_INTEGER, AT(listen), 1, 65535, NULL, true },
	{ "connect", "ADDRESS:PORT", "be the initiator, towards another machine's --listen",
	  KLAT_TEXT, AT(connect), 0, 0, NULL, true },
	{ "wait-for", "SECONDS",
	  "how long --listen and --connect wait for the other machine, before the run and in it",
	  KLAT_INTEGER, AT(wait_for), 1, 86400, NULL, true },
	{ "interface", "NAME", "multicast: the network interface (default: by address)", KLAT_TEXT,
	  AT(interface), 0, 0, NULL, true },
};

static const struct options defaults = { .bytes = 100,
					 .datagram = LARGEST_DATAGRAM,
					 .wait_for = 10 };

static const struct klat_metric metrics[] = {
	[ROUND_TRIP] = { "round_trip", "message handed over to answer there, initiator's CPU",
			 true },
	[HALF] = { "half", "half of the round trip: one way, both directions being alike", true },
	[RESPONSE] = { "response", "with --rate: from when the message was due to the answer",
		       false },
	[TURNAROUND] = { "turnaround", "with --listen: message there to answer handed over", true },
};

#define HMBDC "HMBDC, i7-4770K or E5-2670: "
#define QPERF "qperf over loopback: "
/* Rows for each size, so that they stand beside a sweep of them. */
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

static const struct transport *transport_of(const struct klat_run *run)
{
	return transports[((const struct options *)run->options)->transport];
}

static uint64_t ms_to_ticks(const struct klat_run *run, int64_t ms)
{
	return ms * run->counter_khz;
}

/* Configuration */

/* A second at most on a machine of our days, where nobody asked for another number. */
static void choose_iterations(struct klat_run *run)
{
	const struct options *o = run->options;

	if (o->bytes <= 100000)
		return;
	if (!run->iterations_given)
		run->iterations = o->bytes <= 1000000 ? 200 : 50;
	if (!run->warmup_given)
		run->warmup = o->bytes <= 1000000 ? 20 : 5;
}

static int parse_connect(struct klat_run *run)
{
	const struct options *o = run->options;
	struct state *state = run->state;
	const char *colon = strrchr(o->connect, ':');
	char address[INET_ADDRSTRLEN], *end = NULL;
	long port = colon && colon[1] >= '0' && colon[1] <= '9' ? strtol(colon + 1, &end, 10) : 0;

	state->listener = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port) };
	if (colon && colon - o->connect < (ptrdiff_t)sizeof(address)) {
		memcpy(address, o->connect, colon - o->connect);
		address[colon - o->connect] = 0;
		if (end && !*end && port >= 1 && port <= 65535 &&
		    inet_pton(AF_INET, address, &state->listener.sin_addr) == 1)
			return 0;
	}
	return klat_usage(run,
			  "--connect takes an IPv4 address and a port, as in 192.0.2.1:7718, not "
			  "'%s'",
			  o->connect);
}

static int configure_peer(struct klat_run *run)
{
	struct options *o = run->options;
	const bool remote = o->listen || o->connect;

	if (o->listen && o->connect)
		return klat_usage(run, "--listen and --connect exclude each other");
	if (o->peer != AUTO && (o->peer == REMOTE) != remote)
		return klat_usage(run, "--peer remote goes with --listen or --connect");
	if (remote)
		o->peer = REMOTE;
	else if (o->peer == AUTO)
		o->peer = o->transport == THREAD_POINTER ? THREAD : PROCESS;
	if (o->transport == THREAD_POINTER && o->peer != THREAD)
		return klat_usage(run,
				  "--transport thread-pointer goes with --peer thread: to another "
				  "process an address means nothing");
	if ((remote || o->peer == NETNS) && !transport_of(run)->internet)
		return klat_usage(run, "--peer %s takes --transport tcp, udp or multicast",
				  peers[o->peer]);
	if (o->interface && (o->transport != MULTICAST || o->peer == NETNS))
		return klat_usage(run, "--interface goes with --transport multicast, and not with "
				       "--peer netns");
	if (o->interface && (!o->interface[0] || strlen(o->interface) >= IFNAMSIZ))
		return klat_usage(run,
				  "--interface takes a name of at most %d characters, not '%s'",
				  IFNAMSIZ - 1, o->interface);
	if ((o->drop_every || o->reorder_every || o->duplicate_every) &&
	    !transport_of(run)->datagrams)
		return klat_usage(run, "--%s-every goes with --transport udp or multicast",
				  o->drop_every      ? "drop"
				  : o->reorder_every ? "reorder"
						     : "duplicate");
	if (o->drop_every == 1)
		return klat_usage(run, "--drop-every 1 would leave no datagram");
	if (o->reorder_every == 1)
		return klat_usage(run, "--reorder-every 1 would leave no datagram to overtake");
	return o->connect ? parse_connect(run) : 0;
}

static int configure_waits(struct klat_run *run)
{
	struct options *o = run->options;

	if (o->wait == AUTO)
		o->wait = run->one_cpu && o->peer != REMOTE ? BLOCK : SPIN;
	if (o->rate && o->listen)
		return klat_usage(run, "--rate is the initiator's, and does not go with --listen");
	if (o->wait == SPIN && o->rate && o->rate < LOWEST_SPIN_RATE)
		return klat_usage(
			run, "--rate below %d needs --wait block: a spinner cannot wait so long",
			LOWEST_SPIN_RATE);
	if (o->wait == BLOCK && klat_planted(run, "sleep"))
		return klat_usage(run, "--plant sleep goes with --wait spin");
	if (o->wait == SPIN && o->peer != REMOTE && run->one_cpu)
		return klat_usage(run,
				  "--wait spin needs two CPUs: on one, the spinner would keep the "
				  "other side from running");
	return 0;
}

static int configure(struct klat_run *run)
{
	const struct options *o = run->options;
	int err = configure_peer(run);

	if (err)
		return err;
	run->cpu_count = o->peer == REMOTE ? 1 : 2;
	err = configure_waits(run);
	if (err)
		return err;
	/* What is wrong with the other machine is said here before the supervisor gives up. */
	if (o->peer == REMOTE)
		run->patience += o->wait_for;
	choose_iterations(run);
	if (o->listen) {
		klat_use_metric(run, TURNAROUND, 1);
		return 0;
	}
	klat_use_metric(run, ROUND_TRIP, 1);
	klat_use_metric(run, HALF, 1);
	if (o->rate)
		klat_use_metric(run, RESPONSE, 1);
	return 0;
}

/* The sides */

int say_silent(struct side *side, const char *awaited)
{
	return klat_error(
		side->run, ETIMEDOUT,
		"the %s timed out after %lld s waiting for a %s, at iteration %lld: %s", side->name,
		(long long)side->limit_ms / 1000, awaited, (long long)side->worker->iteration,
		side->options->peer == REMOTE ? "does the other machine still answer?"
					      : "is another real-time task on these CPUs?");
}

int say_gone(struct side *side)
{
	return klat_error(side->run, EPIPE,
			  "the other side of the %s is gone: it left at iteration %lld", side->name,
			  (long long)side->worker->iteration);
}

/* A process that was forked has none of the pages that are shared. */
static void prefault(const struct state *state)
{
	for (size_t at = 0; at < state->region_size; at += PAGE)
		__atomic_fetch_or(state->region + at, 0, __ATOMIC_RELAXED);
}

static int begin_body(struct klat_worker *worker, struct side *side)
{
	const struct options *o = side->options;
	int err;

	side->worker = worker;
	if (worker->process)
		prefault(worker->state);
	err = o->peer == REMOTE ? remote_start(side->run) : 0;
	/* A little more than the limit, so that two beats are always that far apart. */
	if (!err && o->wait == BLOCK && side->transport->beat_ms)
		err = beat_begin(side, side->transport->beat_ms(o) + 1);
	return err;
}

static void begin_iteration(struct side *side, int64_t i)
{
	if (klat_iteration(side->worker, i))
		side->tally = (struct tally){ 0 };
}

void pause_ms(struct klat_worker *worker, int ms)
{
	klat_sleep(worker, ms * INT64_C(1000000));
}

static uint64_t base_of(const struct side *side, uint64_t number, int sender)
{
	return pattern_base(side->options->touch == WRITE ? number : 0, sender);
}

static inline int send_message(struct side *side, uint64_t word, int self)
{
	const struct options *o = side->options;

	if (o->touch == WRITE)
		pattern_write(side->outgoing, o->bytes, base_of(side, word & WORD_NUMBER, self));
	if (__builtin_expect(side->spoils, 0))
		side->outgoing[o->bytes - 1] ^= 1;
	side->tally.sent++;
	return side->transport->send(side, word);
}

static inline int receive_message(struct side *side, struct message *message, uint64_t number,
				  int self)
{
	const struct options *o = side->options;
	int err;

	side->awaited = number;
	err = side->transport->receive(side, message);
	if (err)
		return err;
	side->tally.received++;
	if ((message->word & WORD_NUMBER) != number ||
	    (o->touch != UNTOUCHED &&
	     pattern_differs(message->data, o->bytes, base_of(side, number, !self))))
		side->tally.damaged++;
	return 0;
}

/* What was not read while it was timed is read once, at the end. */
static void check_last(struct side *side, const struct message *message, int self)
{
	const struct options *o = side->options;
	uint64_t number = klat_made(side->run);

	if (o->touch == UNTOUCHED &&
	    pattern_differs(message->data, o->bytes, base_of(side, number, !self)))
		side->tally.damaged++;
}

/* Open loop: message i is due `interval` after the one before it, whenever that was answered. */
struct schedule {
	double interval, due; /* ticks */
	int64_t late;
};

static void await_due(struct side *side, struct schedule *schedule)
{
	const double ns = 1e6 / side->run->counter_khz, wake_early_ns = 100000;
	double left_ns;

	if (!schedule->due)
		schedule->due = klat_ticks();
	while ((left_ns = (schedule->due - klat_ticks()) * ns) > 2 * wake_early_ns) {
		klat_sleep(side->worker, left_ns - wake_early_ns);
		/* It was a rest; another one would lower the rate. */
		side->worker->spin_began = 0;
	}
	while (klat_ticks() < schedule->due)
		;
}

/*
 * Between two messages. The pause of a spinning pair is agreed on in the message before, so that it
 * is in no sample; that of a blocking one is the initiator's alone, for the other sleeps anyway.
 */
static void rest(struct side *side, struct schedule *schedule, bool agreed)
{
	const uint64_t before = klat_ticks();
	const bool blocks = side->options->wait == BLOCK;

	if (blocks ? !klat_rest(side->worker) : !agreed)
		return;
	if (!blocks)
		pause_ms(side->worker, PAUSE_MS + 1);
	side->spun_since = klat_ticks();
	/* The pause is the program's own: it makes no message late. */
	schedule->due += schedule->due ? side->spun_since - before : 0;
}

static bool wants_rest(const struct side *side)
{
	return side->options->wait == SPIN && klat_ticks() - side->spun_since > side->turn;
}

static int initiator(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	struct side *side = &state->sides[INITIATOR];
	struct schedule schedule = { .interval = o->rate ? run->counter_khz * 1e3 / o->rate : 0 };
	uint64_t *round_trip = klat_series(run, ROUND_TRIP, 0), *half = klat_series(run, HALF, 0),
		 *response = klat_series(run, RESPONSE, 0);
	struct message answer = { 0 };
	int err = begin_body(worker, side);

	side->spun_since = klat_ticks();
	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		uint64_t number = i + run->warmup + 1, begin, end;
		bool resting = wants_rest(side);

		begin_iteration(side, i);
		if (response)
			await_due(side, &schedule);
		begin = klat_stamp_begin();
		err = send_message(side, number | (resting ? WORD_REST : 0), INITIATOR);
		if (!err)
			err = receive_message(side, &answer, number, INITIATOR);
		end = klat_stamp_end(worker);
		round_trip[i] = end - begin;
		half[i] = round_trip[i] / 2;
		if (response) {
			response[i] = end - (uint64_t)schedule.due;
			schedule.late +=
				klat_is_sample(run, i) && begin - schedule.due > schedule.interval;
			schedule.due += schedule.interval;
		}
		rest(side, &schedule, resting);
	}
	state->late = schedule.late;
	__atomic_store_n(&state->finished, true, __ATOMIC_RELEASE);
	beat_end(side);
	if (!err)
		check_last(side, &answer, INITIATOR);
	if (state->control >= 0 && !err)
		shutdown(state->control, SHUT_WR);
	return err;
}

/* The last answer may be lost: give it again until the initiator has all it wanted. */
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

static int responder(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct side *side = &state->sides[RESPONDER];
	const bool sleeps = klat_planted(run, "sleep"), corrupts = klat_planted(run, "corrupt");
	uint64_t *turnaround = klat_series(run, TURNAROUND, 0), begin = 0;
	struct message message = { 0 };
	int err = begin_body(worker, side);

	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		uint64_t number = i + run->warmup + 1;

		begin_iteration(side, i);
		if (__builtin_expect(sleeps, 0))
			klat_nap(20000);
		side->spoils = corrupts && i == klat_end(run) - 1;
		err = receive_message(side, &message, number, RESPONDER);
		if (turnaround)
			begin = klat_stamp_begin();
		klat_inject(run, i);
		if (!err)
			err = send_message(side, message.word, RESPONDER);
		if (turnaround)
			turnaround[i] = klat_stamp_end(worker) - begin;
		if (!err && message.word & WORD_REST)
			pause_ms(worker, PAUSE_MS);
	}
	if (!err)
		check_last(side, &message, RESPONDER);
	err = err ? err : linger(side);
	beat_end(side);
	return err;
}

/* The run */

static size_t whole_pages(size_t size)
{
	return (size + PAGE - 1) & ~(size_t)(PAGE - 1);
}

/* For each side a block to send, one to receive into, and a ring to send through. */
static int map_region(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct transport *transport = transport_of(run);
	struct state *state = run->state;
	size_t block = whole_pages(o->bytes),
	       ring = transport->ring_size ? whole_pages(transport->ring_size(o)) : 0;
	/* A datagram that lands in the place of the last part may be longer than that. */
	size_t slack = transport->datagrams ? whole_pages(LARGEST_DATAGRAM) : 0;
	size_t each = block * (1 + transport->copies) + slack + ring;
	char *next;

	next = mmap(NULL, 2 * each, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (next == MAP_FAILED)
		return klat_error(run, errno, "cannot map %zu bytes for the messages: %s", 2 * each,
				  strerror(errno));
	/* The first touch keeps faults out of the timed part. */
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
		pattern_write(side->outgoing, o->bytes, pattern_base(0, i));
	}
	return 0;
}

static int setup(struct klat_run *run)
{
	static const char *const names[] = { "initiator", "responder" };
	const struct options *o = run->options;
	struct state *state = run->state;
	int err;

	for (int i = 0; i < 2; i++) {
		struct side *side = &state->sides[i];

		side->run = run;
		side->options = o;
		side->transport = transport_of(run);
		side->index = side->random = i;
		side->name = names[i];
		side->in = side->out = state->namespaces[i] = -1;
		side->limit_ms = o->peer == REMOTE ? o->wait_for * 1000 : SILENCE_MS;
		side->limit = ms_to_ticks(run, side->limit_ms);
		side->turn = ms_to_ticks(run, SPIN_MS);
		fragments_prepare(side);
	}
	state->control = -1;
	err = map_region(run);
	if (!err && transport_of(run)->beat_ms)
		err = beat_prepare(run);
	if (!err && o->peer == REMOTE)
		err = remote_meet(run);
	if (!err)
		err = transport_of(run)->open(run);
	if (err)
		return err;
	if (!o->listen)
		klat_worker_add(run, names[INITIATOR], 0, KLAT_HIGH, initiator);
	if (!o->connect)
		klat_worker_add(run, names[RESPONDER], run->cpu_count - 1, KLAT_HIGH, responder);
	for (int i = 0; i < run->worker_count; i++) {
		/* A thread of a process that has others pays for references to its files. */
		run->workers[i].process = o->peer != THREAD;
		run->workers[i].woken = o->peer != REMOTE;
	}
	return 0;
}

/* A block that is handed over by its address, and that nobody looks at, is no throughput. */
static bool moves_bytes(const struct options *o)
{
	const struct transport *transport = transports[o->transport];

	return o->touch != UNTOUCHED ||
	       (transport != &thread_pointer && transport != &shm_zero_copy);
}

/* Both directions' bytes over the time that they took. */
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
		/* Now and then on a lock of the kernel's, as that of a pipe, which is no wait for a
		 * message. */
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
		klat_invalid(run,
			     "--rate %lld was not kept: %lld of %lld messages left more than an "
			     "interval late",
			     (long long)o->rate, (long long)state->late,
			     (long long)run->iterations);
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
		klat_disturbed(run, "messages were lost, or late, and sent again");
	if (sum->repaired && !o->drop_every)
		klat_disturbed(run, "parts of messages were lost, or late, and repaired");
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

static int verify(struct klat_run *run)
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
		klat_invalid(run, "%lld messages sent and %lld received, and %lld expected of each",
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

static const struct klat_benchmark transport = {
	.name = "transport",
	.summary = "ping-pong of messages by size, through memory or the kernel",
	.description =
		"An initiator sends a message, a responder answers with one of the same size. "
		"Each round trip is timed on the initiator's CPU; half is half of it, which is "
		"how others print it. By descriptor (thread-pointer, shm-zero-copy) nothing of "
		"the block is moved, and with --touch none nobody looks at it, so that its size "
		"cannot matter; --touch read and write put into the stamps what a program does "
		"with its data. Every message is checked: its number, with --touch read or write "
		"all of its bytes, else those of the last one.\n\n"
		"Spinning sides poll, and never sleep, which the evidence shows; blocking ones "
		"sleep for every message. With --rate messages are due at fixed times, and "
		"response counts from there, so that a delay is seen in all that it delays; a "
		"rate that is not kept makes the run invalid.\n\n"
		"Without --iterations, messages above 100,000 bytes are sent 200 times, those "
		"above 1,000,000 bytes 50 times.",
	.examples =
		"transport\tan address from thread to thread\n"
		"transport --transport shm-zero-copy --bytes 10000000\ta descriptor between "
		"processes\n"
		"transport --transport pipe --bytes 10000 --touch write --wait block\twritten, "
		"piped, read\n"
		"transport --transport unix --wait block --rate 1000\tlatency under a fixed load",
	KLAT_OPTIONS(options, defaults),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	.state_size = sizeof(struct state),
	.iterations = 500,
	.warmup = 50,
	.policy = SCHED_FIFO,
	.high_priority = 50,
	.needs_frequency = true,
	.faults = { "corrupt", "sleep" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};

int main(int argc, char **argv)
{
	return klat_main(&transport, argc, argv);
}
