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

#include "pattern.h"
#include "ring.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum {
	ROUND_TRIP,
	HALF,
	RESPONSE
};

/* A spinner's turn, and the pause after it: 87 % of the time, where the kernel's limit is 95 %. */
#define SPIN_MS 40
#define PAUSE_MS 6
#define SILENCE_MS 5000
/* A lower rate would have the responder spin for longer than that between two messages. */
#define LOWEST_SPIN_RATE 50
#define PAGE 4096

static const struct transport *const transports[] = {
	&thread_pointer, &shm_zero_copy, &shm_copy, &pipe_transport, &unix_transport,
};
static const char *const transport_names[] = { "thread-pointer", "shm-zero-copy", "shm-copy",
					       "pipe",           "unix",          NULL };
static const char *const peers[] = { "auto", "thread", "process", NULL };
static const char *const waits[] = { "spin", "block", NULL };
static const char *const touches[] = { "none", "read", "write", NULL };

#define AT(field) offsetof(struct options, field)
static const struct klat_option options[] = {
	{ "bytes", "N", "size of a message, which each answer has, too", KLAT_INTEGER, AT(bytes),
	  SMALLEST, LARGEST, NULL, false },
	{ "transport", "thread-pointer|shm-zero-copy|shm-copy|pipe|unix",
	  "how a message reaches the other side", KLAT_CHOICE, AT(transport), 0, 0, transport_names,
	  false },
	{ "peer", "auto|thread|process",
	  "what the other side is; auto is a thread for thread-pointer, else a process",
	  KLAT_CHOICE, AT(peer), 0, 0, peers, false },
	{ "wait", "spin|block", "how both sides wait: poll, or sleep in the kernel", KLAT_CHOICE,
	  AT(wait), 0, 0, waits, false },
	{ "touch", "none|read|write",
	  "what is done with each block: nothing, read by its receiver, or also written anew by "
	  "its sender",
	  KLAT_CHOICE, AT(touch), 0, 0, touches, false },
	{ "rate", "N",
	  "messages a second, sent when they are due; 0 sends each when the last is answered",
	  KLAT_INTEGER, AT(rate), 0, 10000000, NULL, false },
};

static const struct options defaults = { .bytes = 100 };

static const struct klat_metric metrics[] = {
	[ROUND_TRIP] = { "round_trip", "message handed over to answer there, initiator's CPU",
			 true },
	[HALF] = { "half", "half of the round trip: one way, both directions being alike", true },
	[RESPONSE] = { "response", "with --rate: from when the message was due to the answer",
		       false },
};

#define HMBDC "HMBDC on an i7-4770K or E5-2670, half of the round trip; "
static const struct klat_published published[] = {
	{ "half", "transport=thread-pointer", 2000, "ns",
	  HMBDC "about 2 us between threads, of every size" },
	{ "half", "transport=shm-zero-copy;touch=none", 1000, "ns",
	  HMBDC "below 1 us between processes, of every size: an upper bound" },
	{ "half", "transport=shm-copy;bytes=100", 1000, "ns",
	  HMBDC "lower end of 1 us to 4 ms over 100 B to 10 MB" },
	{ "half", "transport=shm-copy;bytes=10000000", 4000000, "ns",
	  HMBDC "upper end of 1 us to 4 ms over 100 B to 10 MB" },
};

static const struct transport *transport_of(const struct klat_run *run)
{
	return transports[((const struct options *)run->options)->transport];
}

static uint64_t ms_to_ticks(const struct klat_run *run, int64_t ms)
{
	return ms * run->tsc_khz;
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

static int configure(struct klat_run *run)
{
	struct options *o = run->options;

	if (o->peer == AUTO)
		o->peer = o->transport == THREAD_POINTER ? THREAD : PROCESS;
	if (o->transport == THREAD_POINTER && o->peer != THREAD)
		return klat_usage(run,
				  "--transport thread-pointer goes with --peer thread: to another "
				  "process an address means nothing");
	if (o->wait == SPIN && o->rate && o->rate < LOWEST_SPIN_RATE)
		return klat_usage(run,
				  "--rate below %d goes with --wait block: a spinner cannot wait "
				  "so long",
				  LOWEST_SPIN_RATE);
	if (o->wait == BLOCK && klat_planted(run, "sleep"))
		return klat_usage(run, "--plant sleep goes with --wait spin");
	run->cpu_count = 2;
	if (o->wait == SPIN && run->cpus_given && run->cpus[0] == run->cpus[1])
		return klat_usage(run,
				  "--wait spin needs two CPUs: on one, the spinner would keep the "
				  "other side from running");
	choose_iterations(run);
	klat_use_metric(run, ROUND_TRIP, 1);
	klat_use_metric(run, HALF, 1);
	if (o->rate)
		klat_use_metric(run, RESPONSE, 1);
	return 0;
}

/* The sides */

int say_silent(struct side *side, const char *awaited)
{
	return klat_error(side->run, ETIMEDOUT,
			  "the %s waited %d s for a %s at message %lld: is anything else of "
			  "real-time priority on these CPUs?",
			  side->name, SILENCE_MS / 1000, awaited, (long long)side->received + 1);
}

/* A process that was forked has none of the pages that are shared. */
static void prefault(const struct state *state)
{
	for (size_t at = 0; at < state->region_size; at += PAGE)
		__atomic_fetch_or(state->region + at, 0, __ATOMIC_RELAXED);
}

static void begin_body(struct klat_worker *worker, struct side *side)
{
	side->worker = worker;
	if (worker->process)
		prefault(worker->state);
}

static void begin_iteration(struct side *side, int64_t i)
{
	klat_iteration(side->worker, i);
	if (i)
		return;
	side->sent = side->received = side->damaged = 0;
	side->bytes_sent = side->bytes_received = 0;
}

static void pause_ms(struct klat_worker *worker, int ms)
{
	const struct timespec pause = { .tv_nsec = ms * 1000000 };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	worker->rests++;
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
	side->sent++;
	return transport_of(side->run)->send(side, word);
}

static inline int receive_message(struct side *side, struct message *message, uint64_t number,
				  int self)
{
	const struct options *o = side->options;
	int err = transport_of(side->run)->receive(side, message);

	if (err)
		return err;
	side->received++;
	if ((message->word & WORD_NUMBER) != number ||
	    (o->touch != UNTOUCHED &&
	     pattern_differs(message->data, o->bytes, base_of(side, number, !self))))
		side->damaged++;
	return 0;
}

/* What was not read while it was timed is read once, at the end. */
static void check_last(struct side *side, const struct message *message, int self)
{
	const struct options *o = side->options;
	uint64_t number = side->run->iterations + side->run->warmup;

	if (o->touch == UNTOUCHED &&
	    pattern_differs(message->data, o->bytes, base_of(side, number, !self)))
		side->damaged++;
}

/* Open loop: message i is due `interval` after the one before it, whenever that was answered. */
struct schedule {
	double interval, due; /* ticks */
	int64_t late;
};

static void await_due(struct side *side, struct schedule *schedule)
{
	const double ns = 1e6 / side->run->tsc_khz, wake_early_ns = 100000;
	uint64_t now = __rdtsc();

	if (!schedule->due)
		schedule->due = now;
	if ((schedule->due - now) * ns > 2 * wake_early_ns) {
		int64_t sleep_ns = (schedule->due - now) * ns - wake_early_ns;
		struct timespec left = { sleep_ns / 1000000000, sleep_ns % 1000000000 };

		clock_nanosleep(CLOCK_MONOTONIC, 0, &left, NULL);
		side->worker->rests++;
	}
	while (__rdtsc() < schedule->due)
		;
}

/*
 * Between two messages. The pause of a spinning pair is agreed on in the message before, so that it
 * is in no sample; that of a blocking one is the initiator's alone, for the other sleeps anyway.
 */
static void rest(struct side *side, struct schedule *schedule, bool agreed)
{
	const uint64_t before = __rdtsc();
	const int64_t rests = side->worker->rests;

	if (side->options->wait == BLOCK)
		klat_rest(side->worker);
	else if (agreed)
		pause_ms(side->worker, PAUSE_MS + 1);
	if (side->worker->rests == rests)
		return;
	side->spun_since = __rdtsc();
	/* The pause is the program's own: it makes no message late. */
	schedule->due += schedule->due ? side->spun_since - before : 0;
}

static bool wants_rest(const struct side *side)
{
	return side->options->wait == SPIN &&
	       __rdtsc() - side->spun_since > ms_to_ticks(side->run, SPIN_MS);
}

static int initiator(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	const struct options *o = run->options;
	struct state *state = worker->state;
	struct side *side = &state->sides[INITIATOR];
	struct schedule schedule = { .interval = o->rate ? run->tsc_khz * 1e3 / o->rate : 0 };
	uint64_t *round_trip = klat_series(run, ROUND_TRIP, 0), *half = klat_series(run, HALF, 0),
		 *response = klat_series(run, RESPONSE, 0);
	struct message answer;
	int err = 0;

	begin_body(worker, side);
	side->spun_since = __rdtsc();
	for (int64_t i = -run->warmup; i < run->iterations && !err; i++) {
		uint64_t number = i + run->warmup + 1, begin, end;
		bool resting = wants_rest(side);

		begin_iteration(side, i);
		if (response)
			await_due(side, &schedule);
		begin = klat_tsc_begin();
		err = send_message(side, number | (resting ? WORD_REST : 0), INITIATOR);
		if (!err)
			err = receive_message(side, &answer, number, INITIATOR);
		end = klat_tsc_end(worker);
		round_trip[i] = end - begin;
		half[i] = round_trip[i] / 2;
		if (response) {
			response[i] = end - (uint64_t)schedule.due;
			if (i == 0)
				schedule.late = 0;
			schedule.late += begin - schedule.due > schedule.interval;
			schedule.due += schedule.interval;
		}
		rest(side, &schedule, resting);
	}
	state->late = schedule.late;
	if (!err)
		check_last(side, &answer, INITIATOR);
	return err;
}

static int responder(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct state *state = worker->state;
	struct side *side = &state->sides[RESPONDER];
	const bool sleeps = klat_planted(run, "sleep"), corrupts = klat_planted(run, "corrupt");
	struct message message;
	int err = 0;

	begin_body(worker, side);
	for (int64_t i = -run->warmup; i < run->iterations && !err; i++) {
		uint64_t number = i + run->warmup + 1;
		const struct timespec moment = { .tv_nsec = 20000 };

		begin_iteration(side, i);
		if (__builtin_expect(sleeps, 0))
			clock_nanosleep(CLOCK_MONOTONIC, 0, &moment, NULL);
		side->spoils = corrupts && i == run->iterations - 1;
		err = receive_message(side, &message, number, RESPONDER);
		klat_inject(run, i);
		if (!err)
			err = send_message(side, message.word, RESPONDER);
		if (!err && message.word & WORD_REST)
			pause_ms(worker, PAUSE_MS);
	}
	if (!err)
		check_last(side, &message, RESPONDER);
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
	size_t each = block * (1 + transport->copies) + ring;
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

	for (int i = 0; i < 2; i++)
		state->sides[i] = (struct side){ .run = run,
						 .options = o,
						 .name = names[i],
						 .in = -1,
						 .out = -1,
						 .limit = ms_to_ticks(run, SILENCE_MS) };
	err = map_region(run);
	if (!err)
		err = transport_of(run)->open(run);
	if (err)
		return err;
	klat_worker_add(run, names[INITIATOR], 0, KLAT_HIGH, initiator);
	klat_worker_add(run, names[RESPONDER], 1, KLAT_HIGH, responder)->process =
		o->peer == PROCESS;
	return 0;
}

/* Both directions' bytes over the time that they took. */
static int64_t megabytes_a_second(const struct klat_run *run)
{
	const struct options *o = run->options;
	const uint64_t *round_trip = klat_series(run, ROUND_TRIP, 0);
	double ticks = 0;

	for (int64_t i = 0; i < run->iterations; i++)
		ticks += round_trip[i];
	return 2.0 * o->bytes * run->iterations / 1e6 / (ticks / run->tsc_khz / 1e3);
}

static void verify_waits(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;

	for (int i = 0; i < 2; i++) {
		const char *role = state->sides[i].name;
		const struct klat_worker *worker = klat_worker_find(run, role, 0);

		if (o->wait == BLOCK)
			klat_verify_slept(run, role);
		else if (worker->voluntary * 100 > run->iterations)
			klat_invalid(run, "the %s slept, and was to spin", role);
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

static int verify(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	const struct side *a = &state->sides[INITIATOR], *b = &state->sides[RESPONDER];
	int64_t expected = 2 * run->iterations;

	klat_count(run, "sent", a->sent + b->sent);
	klat_count(run, "received", a->received + b->received);
	klat_count(run, "damaged", a->damaged + b->damaged);
	klat_count(run, "bytes_sent", a->bytes_sent + b->bytes_sent);
	klat_count(run, "bytes_received", a->bytes_received + b->bytes_received);
	klat_count(run, "mb_per_s", megabytes_a_second(run));
	if (a->sent + b->sent != expected || a->received + b->received != expected ||
	    a->bytes_received + b->bytes_received != expected * o->bytes)
		klat_invalid(run, "%lld messages sent and %lld received in %lld round trips",
			     (long long)(a->sent + b->sent), (long long)(a->received + b->received),
			     (long long)run->iterations);
	if (a->damaged + b->damaged)
		klat_invalid(run, "%lld messages arrived damaged or out of order",
			     (long long)(a->damaged + b->damaged));
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
	.options = options,
	.option_count = KLAT_ARRAY_SIZE(options),
	.defaults = &defaults,
	.options_size = sizeof(struct options),
	.metrics = metrics,
	.metric_count = KLAT_ARRAY_SIZE(metrics),
	.published = published,
	.published_count = KLAT_ARRAY_SIZE(published),
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
