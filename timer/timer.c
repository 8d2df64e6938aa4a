/* SPDX-License-Identifier: MIT */
/*
 * A timer and the thread that waits for it. Three numbers: delivery, from the last stamp of a
 * spinning thread to the signal handler (interrupt and signal frame); return, from that stamp to
 * the loop that sees the handler's flag (adds sigreturn); lateness, from the deadline to the
 * handler or to the return of the blocking call. Not timed: setting the timer. The traps: a timer
 * so short that it fires inside the call that sets it interrupts no spin, so such samples are
 * counted; and a periodic timer that is served late swallows periods, which are counted too, while
 * lateness is taken from the first deadline that was missed.
 */
#include "klat.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum {
	DELIVERY,
	LATENESS,
	RETURN
};
enum {
	SIGNAL,
	ITIMER,
	TIMERFD,
	NANOSLEEP,
	SIGNAL_BELOW
};
enum {
	AUTO,
	SPIN,
	READ,
	EPOLL,
	SLEEP
};
enum {
	ONE_SHOT,
	PERIODIC
};

/* A spinner with a far deadline sleeps until this long before it: spinning all the way would use up
 * the real-time class. */
#define SPIN_NS 1000000
/* How late a signal is for which a spinner gives way. */
#define STARVED_NS 200000000

struct options {
	int64_t period_us;
	int method, wait, mode;
};

/* What the handler shares with the loop it interrupts. */
struct handler {
	volatile uint64_t last_spin; /* 0 until the loop has turned once since the timer was set */
	volatile uint64_t set;       /* stamp before the timer was set */
	volatile uint64_t from, to;  /* the last stamp before the handler, the handler's first */
	volatile bool early;
	volatile sig_atomic_t fired;
	struct klat_worker *worker;
};

struct state {
	int64_t early, missed, periods;
	int64_t premature;   /* samples that seemed to come before their deadline */
	int64_t unaccounted; /* periods by which the clock and the count of deadlines differ */
};

/* One thread's timer: `next` is the deadline awaited, on CLOCK_MONOTONIC. */
struct clockwork {
	struct klat_worker *worker;
	const struct options *options;
	struct handler *handler;
	int64_t period, next;
	int64_t begun; /* when this stretch of a periodic timer did, 0 between two */
	int64_t missed, periods, premature, unaccounted;
	int64_t counted; /* when deadlines were last counted */
	timer_t timer;
	int fd, epoll_fd;
	/* Planted faults: in place of a wait; of the deadline; of the periods that passed. */
	bool yields, misdates, miscounts;
};

static const char *const methods[] = { "signal",    "itimer",       "timerfd",
				       "nanosleep", "signal-below", NULL };
static const char *const waits[] = { "auto", "spin", "read", "epoll", "sleep", NULL };
static const char *const modes[] = { "one-shot", "periodic", NULL };

#define AT(field) offsetof(struct options, field)
static const struct klat_option options[] = {
	{ "method", "signal|itimer|timerfd|nanosleep|signal-below",
	  "timer_create() or setitimer() with SIGALRM, a timer descriptor, clock_nanosleep() to "
	  "a deadline, or timer_create() with the waiter under SCHED_OTHER, below the thread that "
	  "sends signals under PREEMPT_RT",
	  KLAT_CHOICE, AT(method), 0, 0, methods, false },
	{ "wait", "auto|spin|read|epoll|sleep",
	  "how the thread waits: auto spins for signals, reads a timerfd, sleeps in nanosleep; "
	  "read and epoll of a signal use a "
	  "signalfd",
	  KLAT_CHOICE, AT(wait), 0, 0, waits, false },
	{ "mode", "one-shot|periodic", "set anew for each sample, or running", KLAT_CHOICE,
	  AT(mode), 0, 0, modes, false },
	{ "period", "US", "time to the deadline, microseconds", KLAT_INTEGER, AT(period_us), 1,
	  10000000, NULL, false },
};

static const struct options defaults = { .period_us = 1000 };

static const struct klat_metric metrics[] = {
	[DELIVERY] = { "delivery", "last spin stamp to the signal handler", true },
	[LATENESS] = { "lateness", "deadline to the handler, or to the end of the wait", true },
	[RETURN] = { "return", "last spin stamp to the loop going on after the handler", true },
};

static const struct klat_published published[] = {
	{ "delivery", "method=signal", 6147.38, "cycles",
	  "SIGALRM into a spinning thread, mean of 500 runs, sd 116.7; Linux, 2013" },
};

static int effective_wait(const struct options *o)
{
	static const int natural[] = {
		[SIGNAL] = SPIN,     [ITIMER] = SPIN,       [TIMERFD] = READ,
		[NANOSLEEP] = SLEEP, [SIGNAL_BELOW] = SPIN,
	};

	return o->wait == AUTO ? natural[o->method] : o->wait;
}

static int configure(struct klat_run *run)
{
	struct options *o = run->options;
	int wait = effective_wait(o);
	bool fits = o->method == NANOSLEEP      ? wait == SLEEP
		    : o->method == TIMERFD      ? wait == READ || wait == EPOLL
		    : o->method == SIGNAL_BELOW ? wait == SPIN
						: wait != SLEEP;

	if (!fits)
		return klat_usage(run, "--method %s does not support --wait %s", methods[o->method],
				  waits[wait]);
	o->wait = wait;
	run->ordinary = o->method == SIGNAL_BELOW;
	if (klat_planted(run, "uncounted"))
		o->mode = PERIODIC;
	run->cpu_count = 1;
	run->patience += 2 * (o->period_us / 1000000);
	klat_use_metric(run, LATENESS, 1);
	if (wait == SPIN) {
		klat_use_metric(run, DELIVERY, 1);
		klat_use_metric(run, RETURN, 1);
	}
	return 0;
}

static int64_t ns_to_ticks(const struct klat_run *run, int64_t ns)
{
	return ns * run->counter_khz / 1e6;
}

static int64_t ticks_to_ns(const struct klat_run *run, int64_t ticks)
{
	return ticks * 1e6 / run->counter_khz;
}

/* A handler has no other way to its state; set before the first timer is. */
static struct handler *the_handler;

/* Leaves SIGALRM blocked where it returns to: a period shorter than a delivery would let the loop
 * never go on. */
static void on_alarm(int signal, siginfo_t *info, void *context)
{
	struct handler *handler = the_handler;

	(void)info;
	klat_inject(handler->worker->run, handler->worker->iteration);
	handler->to = klat_stamp_end(handler->worker);
	handler->early = !handler->last_spin;
	handler->from = handler->last_spin ? handler->last_spin : handler->set;
	handler->fired = 1;
	sigaddset(&((ucontext_t *)context)->uc_sigmask, signal);
}

/*
 * Lateness in ticks of what was stamped `at`: the clock is read now, between two stamps, and the
 * ticks since `at` are taken off. Reading the kernel's own clock afterwards assumes nothing of the
 * counter's rate over the period. An interval timer's deadlines are estimated early, never late, so
 * one that seems to come before its deadline serves the one before: a period was taken for missed
 * that was not.
 *
 * No other timer expires before its deadline, so a negative lateness is a misreading: of the two
 * clocks, or of the deadline. It is recorded as 0 and counted.
 */
static uint64_t lateness(struct clockwork *work, uint64_t at)
{
	const struct klat_run *run = work->worker->run;
	uint64_t before = klat_stamp_begin();
	int64_t ns = klat_now_ns(), late;
	uint64_t after = klat_stamp_begin(), since = before + (after - before) / 2 - at;

	if (work->options->method == ITIMER && work->options->mode == PERIODIC &&
	    ns - ticks_to_ns(run, since) < work->next) {
		work->next -= work->period;
		work->missed--;
	}
	late = ns_to_ticks(run, ns - work->next) - since;
	work->premature += late < 0;
	return late < 0 ? 0 : late;
}

/* Set the timer to the deadline work->next; periodic ones then run by themselves. */
static int set_timer(struct clockwork *work)
{
	const struct options *o = work->options;
	int64_t interval = o->mode == PERIODIC ? work->period : 0;
	struct itimerspec absolute = { klat_from_ns(interval), klat_from_ns(work->next) };
	struct itimerval relative = { { interval / 1000000000, interval / 1000 % 1000000 },
				      { work->period / 1000000000,
					work->period / 1000 % 1000000 } };

	switch (o->method) {
	case SIGNAL:
		return timer_settime(work->timer, TIMER_ABSTIME, &absolute, NULL) ? -errno : 0;
	case ITIMER:
		return setitimer(ITIMER_REAL, &relative, NULL) ? -errno : 0;
	case TIMERFD:
		return timerfd_settime(work->fd, TFD_TIMER_ABSTIME, &absolute, NULL) ? -errno : 0;
	default:
		return 0;
	}
}

static int stop_timer(struct clockwork *work)
{
	static const struct itimerspec absolute;
	static const struct itimerval relative;

	switch (work->options->method) {
	case SIGNAL:
		return timer_settime(work->timer, 0, &absolute, NULL) ? -errno : 0;
	case ITIMER:
		return setitimer(ITIMER_REAL, &relative, NULL) ? -errno : 0;
	case TIMERFD:
		return timerfd_settime(work->fd, 0, &absolute, NULL) ? -errno : 0;
	default:
		return 0;
	}
}

/*
 * How many periods a stretch took, by the clock, when deadlines were last counted. The next one is
 * less than a period away then, unless some were counted that have not come, or not counted that
 * have: those are missed. One may pass during the count.
 */
static void end_stretch(struct clockwork *work)
{
	const int64_t left = work->next - work->counted,
		      passed = left <= 0 ? 1 - left / work->period : 0;

	if (work->begun) {
		work->periods += (work->counted - work->begun) / work->period;
		work->missed += passed;
		work->unaccounted += passed > 1 ? passed - 1 : passed ? 0 : left / work->period;
	}
	work->begun = 0;
}

/*
 * The deadline of a relative timer, from what the kernel says is left of it. The call that sets it
 * can take longer than all that is measured here (in a guest it programs the hypervisor's timer),
 * so its begin and end would both be poor guesses; this one is at most a microsecond and a short
 * call early.
 */
static void anchor_itimer(struct clockwork *work)
{
	struct itimerval left;
	int64_t now = klat_now_ns();

	getitimer(ITIMER_REAL, &left);
	/* Nothing is left of one that has fired. */
	if (left.it_value.tv_sec || left.it_value.tv_usec > 1)
		work->next = now + left.it_value.tv_sec * INT64_C(1000000000) +
			     left.it_value.tv_usec * 1000;
	work->begun = work->next - work->period;
}

static int begin_stretch(struct clockwork *work)
{
	int err;

	work->begun = klat_now_ns();
	work->next = work->begun + work->period;
	work->handler->last_spin = 0;
	work->handler->fired = 0;
	work->handler->set = klat_stamp_begin();
	err = set_timer(work);
	if (work->options->method == ITIMER)
		anchor_itimer(work);
	if (work->misdates)
		work->next += work->period / 2;
	return err;
}

/* Hold SIGALRM off, or let it come: between two waits for a running timer it must not interrupt,
 * but stay pending. */
static int hold_alarm(bool hold)
{
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	return -pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &alarm, NULL);
}

static void drop_pending_alarm(void)
{
	static const struct timespec at_once;
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigtimedwait(&alarm, NULL, &at_once);
}

/* True after a sleep: a running timer then has to begin anew, or the sleep would count as lateness.
 */
static bool rested(struct clockwork *work)
{
	return work->options->wait == SPIN && klat_rest(work->worker);
}

/*
 * No signal came while this thread spun. Under PREEMPT_RT a thread of low priority sends it, which
 * a spinner of a higher one keeps from running: then it comes as soon as the spinner sleeps.
 */
static int give_way(struct clockwork *work, int64_t late_ns)
{
	struct klat_run *run = work->worker->run;

	klat_nap(10000000);
	if (work->handler->fired)
		return klat_skip(run,
				 "not delivered: SIGALRM to a thread that spins at priority %d "
				 "(none in %d ms, one when the thread slept: this kernel sends the "
				 "signal from a thread of lower priority). Use --method "
				 "signal-below, or --method nanosleep, which needs no signal",
				 work->worker->priority, STARVED_NS / 1000000);
	if (late_ns > 2000000000)
		return klat_error(run, ETIMEDOUT, "no SIGALRM for two seconds");
	return 0;
}

/* Spin until the handler has run; *end is the loop's first stamp after it. */
static int spin(struct clockwork *work, uint64_t *end)
{
	struct handler *handler = work->handler;
	int64_t limit = work->next + STARVED_NS;

	hold_alarm(false);
	if (work->next - klat_now_ns() > 2 * SPIN_NS) {
		/* A signal that ends this sleep came before the spin; its sample shows that. */
		klat_sleep_until(work->worker, work->next - SPIN_NS);
	}
	for (uint32_t turns = 1; !handler->fired; turns++) {
		handler->last_spin = klat_stamp_begin();
		if (work->yields)
			klat_nap(20000);
		if (!(turns & 0xffff) && klat_now_ns() > limit) {
			int err = give_way(work, klat_now_ns() - work->next);

			if (err)
				return err;
			limit = klat_now_ns() + STARVED_NS;
		}
	}
	*end = klat_stamp_end(work->worker);
	return 0;
}

/* Wait in the kernel; *count is how many expirations the kernel reports at once. */
static int block(struct clockwork *work, uint64_t *count)
{
	const struct options *o = work->options;
	struct timespec deadline = klat_from_ns(work->next);
	struct signalfd_siginfo info;
	struct epoll_event event;

	*count = 1;
	while (work->yields && klat_now_ns() < work->next)
		sched_yield();
	if (o->method == NANOSLEEP)
		return -clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL);
	if (o->wait == EPOLL && epoll_wait(work->epoll_fd, &event, 1, -1) < 0)
		return -errno;
	if (o->method == TIMERFD)
		return read(work->fd, count, sizeof(*count)) == sizeof(*count) ? 0 : -errno;
	if (read(work->fd, &info, sizeof(info)) != sizeof(info))
		return -errno;
	*count = 1 + info.ssi_overrun;
	return 0;
}

/*
 * How many deadlines of an interval timer the kernel passed over when it delivered the last one,
 * which is when it goes on to the first still to come. What the clock says by now could be one too
 * many, for the next may have come since then: so the kernel is asked which it waits for. It says
 * that nothing is left of one that has fired and is pending, and a microsecond of one that is
 * overdue.
 */
static int64_t passed_over(const struct clockwork *work, int64_t now)
{
	struct itimerval value;
	int64_t left, ahead;

	getitimer(ITIMER_REAL, &value);
	left = value.it_value.tv_sec * INT64_C(1000000000) + value.it_value.tv_usec * 1000;
	ahead = now - work->next + (left > 1000 ? left + work->period / 2 : left);
	return ahead > work->period ? ahead / work->period - 1 : 0;
}

/*
 * Go on to the next deadline of a running timer. Further ones that passed before the last was
 * served are missed: the kernel's own count
 * (`more`) where it keeps one, else what it goes on to, or for our own deadlines as many as fit
 * into the lateness.
 */
static int advance(struct clockwork *work, uint64_t late, int64_t more)
{
	const struct options *o = work->options;
	struct handler *handler = work->handler;
	int64_t missed = more;
	int err;

	if (work->miscounts)
		klat_spin(2 * ns_to_ticks(work->worker->run, work->period));
	work->counted = klat_now_ns();
	if (work->miscounts)
		missed = 0;
	else if (o->method == ITIMER)
		missed = passed_over(work, work->counted);
	else if (o->method == NANOSLEEP)
		missed = late / ns_to_ticks(work->worker->run, work->period);
	work->missed += missed;
	work->next += (1 + missed) * work->period;
	handler->last_spin = 0;
	handler->fired = 0;
	handler->set = klat_stamp_begin();
	if (!rested(work))
		return 0;
	/* The rest is the program's own: what it slept through is neither served nor missed. */
	end_stretch(work);
	err = stop_timer(work);
	drop_pending_alarm();
	return err;
}

static int make_clockwork(struct clockwork *work)
{
	const struct options *o = work->options;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
	struct epoll_event readable = { .events = EPOLLIN };
	sigset_t alarm;

	work->fd = work->epoll_fd = -1;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	if (o->method == SIGNAL && timer_create(CLOCK_MONOTONIC, &event, &work->timer))
		return -errno;
	if (o->method == TIMERFD)
		work->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	else if (o->method != NANOSLEEP && o->wait != SPIN)
		work->fd = signalfd(-1, &alarm, SFD_CLOEXEC);
	else
		return 0;
	if (work->fd < 0)
		return -errno;
	if (o->wait != EPOLL)
		return 0;
	work->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return work->epoll_fd < 0 || epoll_ctl(work->epoll_fd, EPOLL_CTL_ADD, work->fd, &readable)
		       ? -errno
		       : 0;
}

static int spinner_sample(struct clockwork *work, int64_t i)
{
	const struct klat_run *run = work->worker->run;
	struct handler *handler = work->handler;
	struct state *state = work->worker->state;
	uint64_t end = 0, late;
	int err = spin(work, &end);

	if (err)
		return err;
	late = lateness(work, handler->to);
	klat_series(run, LATENESS, 0)[i] = late;
	klat_series(run, DELIVERY, 0)[i] = handler->to - handler->from;
	klat_series(run, RETURN, 0)[i] = end - handler->from;
	state->early += klat_is_sample(run, i) && handler->early;
	if (work->options->mode == PERIODIC)
		return advance(work, late,
			       work->options->method == SIGNAL ? timer_getoverrun(work->timer) : 0);
	rested(work);
	return 0;
}

static int sleeper_sample(struct clockwork *work, int64_t i)
{
	const struct klat_run *run = work->worker->run;
	struct state *state = work->worker->state;
	bool early = klat_now_ns() >= work->next;
	uint64_t count, at, late;
	int err = block(work, &count);

	klat_inject(run, i);
	at = klat_stamp_end(work->worker);
	if (err)
		return err;
	late = lateness(work, at);
	klat_series(run, LATENESS, 0)[i] = late;
	state->early += klat_is_sample(run, i) && early;
	return work->options->mode == PERIODIC ? advance(work, late, count - 1) : 0;
}

static int waiter(struct klat_worker *worker)
{
	const struct klat_run *run = worker->run;
	struct options options = *(const struct options *)run->options;
	struct handler handler = { .worker = worker };
	struct clockwork work = { .worker = worker,
				  .options = &options,
				  .handler = &handler,
				  .period = options.period_us * 1000,
				  .yields = klat_planted(run, "yield"),
				  .misdates = klat_planted(run, "early"),
				  .miscounts = klat_planted(run, "uncounted") };
	struct state *state = worker->state;
	int err;

	if (options.method == SIGNAL_BELOW)
		options.method = SIGNAL;
	the_handler = &handler;
	err = make_clockwork(&work);
	for (int64_t i = klat_first(run); i < klat_end(run) && !err; i++) {
		if (klat_iteration(worker, i)) {
			/* The observed part's accounts begin at the last deadline before it. */
			work.missed = work.periods = work.premature = work.unaccounted = 0;
			work.begun = work.begun ? work.next - work.period : 0;
		}
		if (work.options->mode == ONE_SHOT || !work.begun) {
			/* The timer may fire inside the call that sets it, and is to be seen doing
			 * it. */
			if (work.options->wait == SPIN)
				hold_alarm(false);
			err = begin_stretch(&work);
		}
		if (!err)
			err = work.options->wait == SPIN ? spinner_sample(&work, i)
							 : sleeper_sample(&work, i);
	}
	if (work.options->mode == PERIODIC && !err) {
		end_stretch(&work);
		err = stop_timer(&work);
	}
	state->missed = work.missed;
	state->periods = work.periods;
	state->premature = work.premature;
	state->unaccounted = work.unaccounted;
	return err;
}

static int setup(struct klat_run *run)
{
	struct sigaction action = { .sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_RESTART };

	/* Blocked here and so in every thread; the one that spins unblocks it for itself. */
	if (sigaction(SIGALRM, &action, NULL) || hold_alarm(true))
		return klat_error(run, errno, "cannot set up SIGALRM: %s", strerror(errno));
	klat_worker_add(run, "waiter", 0, KLAT_HIGH, waiter);
	return 0;
}

static int verify(struct klat_run *run)
{
	const struct options *o = run->options;
	const struct state *state = run->state;
	const struct klat_worker *worker = klat_worker_find(run, "waiter", 0);

	klat_count(run, "early", state->early);
	if (!klat_is_rare(state->early, run->iterations))
		klat_invalid(run, "the timer fired before the wait began: --period is too short");
	else if (state->early)
		klat_disturbed(run, "some timers fired before the wait began");
	klat_count(run, "premature", state->premature);
	if (!klat_is_rare(state->premature, klat_observed(run)))
		klat_invalid(run,
			     "in %lld of %lld iterations the timer seems to have expired "
			     "before its deadline",
			     (long long)state->premature, (long long)klat_observed(run));
	if (o->mode == PERIODIC) {
		klat_count(run, "missed", state->missed);
		klat_count(run, "periods", state->periods);
		if (!klat_is_rare(state->unaccounted, klat_observed(run)))
			klat_invalid(run, "%lld periods are unaccounted for",
				     (long long)state->unaccounted);
	}
	if (o->wait != SPIN) {
		klat_verify_slept(run, "waiter");
	} else if (!klat_is_rare(worker->voluntary, klat_observed(run))) {
		klat_invalid(run, "the spinner slept");
	} else if (worker->involuntary && o->method != SIGNAL_BELOW) {
		klat_disturbed(run, "the waiter was preempted");
	}
	return 0;
}

static const struct klat_benchmark timer = {
	.name = "timer",
	.summary = "from a timer's deadline to the thread that waits for it",
	.description = "One pinned thread waits for a timer. Spinning, it stamps its counter on "
		       "every turn, so that delivery is what the "
		       "interrupt and the signal frame take, and return adds sigreturn. Lateness "
		       "counts from the deadline, on the kernel's "
		       "clock, and is all that a blocking wait can tell; for setitimer(), whose "
		       "deadline is relative, from what getitimer() says is left "
		       "of it, to the microsecond.\n\n"
		       "One-shot timers are set anew for each sample. Periodic ones run on: a "
		       "period that passes unserved is counted as "
		       "missed, and lateness is taken from the first deadline not yet served, so "
		       "that one long delay is not hidden by the "
		       "samples that it kept from happening. A lateness below 0 is recorded as 0 "
		       "and counted as premature: the kernel lets no timer expire early, so such a "
		       "sample is a misreading of a clock. Under --policy other, timer slack (50 "
		       "us by default) is part of the "
		       "lateness.",
	.examples =
		"timer\tSIGALRM into a spinning thread\n"
		"timer --method nanosleep --mode periodic --period 1000\tas cyclictest measures\n"
		"timer --method timerfd --wait epoll\tan event loop's timer",
	KLAT_OPTIONS(options, defaults),
	KLAT_METRICS(metrics),
	KLAT_PUBLISHED(published),
	.state_size = sizeof(struct state),
	.iterations = 500,
	.warmup = 50,
	.policy = SCHED_FIFO,
	.high_priority = 98,
	.needs_frequency = true,
	.faults = { "yield", "early", "uncounted" },
	.configure = configure,
	.setup = setup,
	.verify = verify,
};

int main(int argc, char **argv)
{
	return klat_main(&timer, argc, argv);
}
