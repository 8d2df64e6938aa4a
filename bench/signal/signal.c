/* SPDX-License-Identifier: MIT */
/*
 * Two threads, or two processes, that signal each other in turns. side.c has the calls.
 *
 * Timed: one round trip, from before the sender's call until its wait for the answer has returned.
 * With --receive handler, both handlers have run and returned by then.
 * Not timed: the check of what the sender received.
 *
 * Traps:
 * - kill(), sigqueue() and pidfd_send_signal() name a process, and the kernel chooses one of its
 *   threads. So each side has its own signal number, and blocks both numbers except in its wait.
 *   Then a signal has one possible receiver, whatever the options, and a signal that comes before
 *   the wait stays pending.
 * - The kernel drops a standard signal that is already pending. So these are real-time signals,
 *   which queue: a signal too many is still pending after the last iteration.
 * - A signal looks fast if the receiver is still awake. So the kernel must have counted a sleep of
 *   each side for each sample.
 */
#include "side.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

struct options options;

struct state {
	struct side sides[2];
	bool ended;                      /* the sender has sent its last signal */
	int64_t mismatched[2], extra[2]; /* by worker */
};

static const struct klat_option option_table[] = {
	{ "send",
	  "the call that sends; all but tgkill leave the choice of the thread to the kernel",
	  KLAT_CHOICE(send, "tgkill", "kill", "sigqueue", "pidfd") },
	{ "receive", "how both sides wait; handler: in sigsuspend()",
	  KLAT_CHOICE(receive, "sigwaitinfo", "handler", "signalfd") },
	{ "peer", "what the receiver is", KLAT_CHOICE(process, "thread", "process") },
};

static const struct klat_metric metrics[] = {
	{ "round_trip", "signal sent until the answer is received, on the sender's CPU",
	  .path_length = true, KLAT_WITHIN("sender", "sender") },
};

static int sender(struct klat_worker *worker)
{
	struct klat_run *run = worker->run;
	const struct klat_worker *receiver = &run->workers[RECEIVER];
	const bool twice = klat_planted(run, "twice");
	struct state *state = worker->state;
	struct side *side = &state->sides[SENDER];
	uint64_t *round_trip = klat_series(run, 0, 0);
	int err = side_aim(side, state->sides[RECEIVER].pid ?: receiver->tid, receiver->tid);

	for (int64_t i = klat_first(run); !err && klat_next(worker, &i); i++) {
		const uint64_t begin = klat_stamp_begin();

		err = side->send(side, (int)i) ? -errno : side->receive(side);
		round_trip[i] = klat_stamp_end(worker) - begin;
		state->mismatched[SENDER] += side_has_mismatch(side, (int)i);
		if (__builtin_expect(twice && i == 0, 0))
			side->send(side, (int)i);
	}
	state->extra[SENDER] = side_has_pending(side);
	__atomic_store_n(&state->ended, true, __ATOMIC_RELEASE);
	return side_end(run, err);
}

static int receiver(struct klat_worker *worker)
{
	struct klat_run *run = worker->run;
	const struct klat_worker *sender = &run->workers[SENDER];
	const bool late = klat_planted(run, "late");
	struct state *state = worker->state;
	struct side *side = &state->sides[RECEIVER];
	int err = side_aim(side, state->sides[SENDER].pid, sender->tid);

	for (int64_t i = klat_first(run); !err && klat_next(worker, &i); i++) {
		if (__builtin_expect(late, 0))
			klat_sleep(worker, 1000000);
		err = side->receive(side);
		klat_inject(run, i);
		if (!err && side->send(side, (int)i))
			err = -errno;
		state->mismatched[RECEIVER] += side_has_mismatch(side, (int)i);
	}
	/* After a signal too many, this side is ahead by one, and one more signal arrives. */
	while (!err && !__atomic_load_n(&state->ended, __ATOMIC_ACQUIRE))
		klat_sleep(worker, 100000);
	state->extra[RECEIVER] = side_has_pending(side);
	return side_end(run, err);
}

static int configure(struct klat_run *run)
{
	const int most = (SIGRTMAX - SIGRTMIN + 1) / 2;

	return run->pairs > most ? klat_usage(run,
					      "--pairs must be at most %d: each pair uses two "
					      "real-time signals",
					      most)
				 : 0;
}

static int setup(struct klat_run *run)
{
	struct side *sides = ((struct state *)run->state)->sides;
	const int pidfd = options.send == PIDFD ? syscall(SYS_pidfd_open, getpid(), 0) : -1;
	int err;

	if (options.send == PIDFD && pidfd < 0)
		return errno == ENOSYS ? klat_skip(run, "this kernel has no pidfd_open()")
				       : klat_error(run, errno, "pidfd_open() failed: %m");
	close(pidfd);
	err = sides_prepare(run, sides);
	if (err)
		return klat_error(run, -err, "cannot prepare to receive signals: %m");
	sides[SENDER].pid = getpid();
	sides[RECEIVER].pid = options.process ? 0 : getpid();
	run->workers[RECEIVER].process = options.process;
	if (klat_planted(run, "call"))
		sides[SENDER].send = send_by(options.send == SIGQUEUE ? KILL : SIGQUEUE);
	return 0;
}

static const struct klat_worker workers[] = {
	[SENDER] = { "sender", .body = sender, .woken = true, .sleeps = KLAT_MOSTLY,
		     .spins = KLAT_ON_ONE_CPU },
	[RECEIVER] = { "receiver", .body = receiver, .place = 1, .woken = true,
		       .sleeps = KLAT_MOSTLY },
};

static void verify(struct klat_run *run)
{
	const struct state *state = run->state;

	klat_require(run,
		     { "mismatched", state->mismatched[SENDER] + state->mismatched[RECEIVER],
		       KLAT_NEVER, 2 * klat_made(run),
		       .reason = "{got} of {wanted} received signals were not those that the other "
				 "side sent" },
		     { "extra", state->extra[SENDER] + state->extra[RECEIVER], KLAT_NEVER,
		       .reason = "a signal too many was pending after the last iteration" });
}

const struct klat_benchmark klat_benchmark = {
	.name = "signal",
	.summary = "round trip of a signal and its answer",
	.description =
		"A sender signals a receiver, which sleeps, wakes, and signals the sender. Each "
		"round trip is timed on the sender's CPU: two signals, two wakeups and, with "
		"--receive handler, two handlers that return.\n\n"
		"Each side has a real-time signal of its own and blocks both signals except in its "
		"wait. So each signal has one possible receiver, also if --send names a process "
		"with several threads, and no signal is lost. tgkill names the thread. With the "
		"other calls the kernel searches the process for a thread that takes the signal, "
		"so a round trip between threads contains that search.\n\n"
		"Evidence: the kernel counted a sleep of each side for each sample; the number, "
		"sender and code of each signal, with sigqueue also its value, are those that were "
		"sent; no signal is pending at the end.",
	.examples =
		"signal\ttgkill() and sigwaitinfo() between two CPUs\n"
		"signal --cpus 1,1 --send kill --peer process\tbetween two processes of one CPU\n"
		"signal --receive handler\ta handler, in sigsuspend()",
	KLAT_OPTIONS(option_table),
	KLAT_METRICS(metrics),
	KLAT_WORKERS(workers),
	KLAT_STATE(struct state),
	.pairs = true,
	.soaks = true,
	.counts_at = offsetof(struct state, mismatched),
	.counts_size = 4 * sizeof(int64_t),
	.faults = { "call", "twice", "late" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};
