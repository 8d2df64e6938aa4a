/* SPDX-License-Identifier: MIT */
/*
 * A proof that an operation flushed a responder's TLB. It needs no interrupt. The responder has
 * written to the pages, and has not slept since, so its TLB has entries for them. After the
 * operation it accesses them again. The access must fault. If an entry is left, the access
 * succeeds.
 *
 * Reading new contents at the same address would prove less: the kernel often reuses the physical
 * pages that it has just freed, and a stale entry points to these.
 *
 * After madvise() an access would get new pages. So the initiator forbids access first. The kernel
 * has no pages there then, and flushes nothing.
 *
 * A fault is a signal. So only some operations are proved, and outside the stamps.
 */
#include "tlbflush.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

enum {
	PROOF_EVERY = 16,
	MOST_PAGES = 64 /* of a proof */
};

/* ThreadSanitizer calls a handler with all signals blocked. */
#ifdef __SANITIZE_THREAD__
#define SAVES_MASK 1
#else
#define SAVES_MASK 0
#endif

static __thread sigjmp_buf faulted;
static __thread const char *volatile accessed;

/* Half of the proofs: a responder may rest in the others. */
int64_t least_proofs(int64_t operations)
{
	return (operations / PROOF_EVERY + 1) / 2;
}

static bool is_proved(const struct state *state, uint32_t generation)
{
	return state->proves && generation % PROOF_EVERY == 1;
}

/* Another fault ends the process: the instruction faults again, by default. */
static void on_fault(int number, siginfo_t *info, void *context)
{
	const uintptr_t page = (uintptr_t)info->si_addr & ~(PAGE - 1);

	(void)context;
	if (accessed && page == (uintptr_t)accessed)
		siglongjmp(faulted, 1);
	signal(number, SIG_DFL);
}

int prepare_proofs(struct klat_run *run)
{
	struct state *state = run->state;
	/* The signal stays unblocked in the handler, so a jump need not restore a mask. */
	const struct sigaction action = { .sa_sigaction = on_fault,
					  .sa_flags = SA_SIGINFO | SA_NODEFER };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	if (sigaction(SIGSEGV, &action, NULL) || sigprocmask(SIG_UNBLOCK, &set, NULL))
		return klat_error(run, errno, "cannot handle the faults that prove a flush: %m");
	state->proves = true;
	return 0;
}

static bool is_accessible(char *page)
{
	bool accessible = false;

	accessed = page;
	if (!sigsetjmp(faulted, SAVES_MASK)) {
		if (options.operation == MPROTECT)
			*(volatile char *)page = 1;
		else
			*(volatile char *)page;
		accessible = true;
	}
	accessed = NULL;
	return accessible;
}

/* Try at most MOST_PAGES of the pages, at equal distances, with the first and the last. */
static bool is_any_accessible(char *pages)
{
	const int64_t count = options.pages < MOST_PAGES ? options.pages : MOST_PAGES;
	bool any = false;

	for (int64_t i = 0; i < count; i++) {
		int64_t page = count > 1 ? i * (options.pages - 1) / (count - 1) : 0;

		any |= is_accessible(pages + page * PAGE);
	}
	return any;
}

int await_proofs(struct klat_worker *initiator, uint32_t generation, bool stale)
{
	struct state *state = initiator->state;
	int err = 0;

	if (!is_proved(state, generation))
		return 0;
	if (stale)
		err = restore(state->pages);
	else if (options.operation == MADVISE)
		err = protect(state->pages, PROT_NONE);
	if (err)
		return err;
	state->proofs_due += options.responders;
	__atomic_store_n(&state->forbidden, generation, __ATOMIC_RELEASE);
	err = klat_spin_until(initiator, &state->proved, state->proofs_due);
	if (!err && options.operation == MADVISE)
		err = protect(state->pages, PROT_READ | PROT_WRITE);
	return err;
}

int prove(struct klat_worker *responder, uint32_t generation, int64_t sleeps)
{
	struct state *state = responder->state;
	int64_t *proofs = &state->responders[responder->index].proofs,
		*stale = &state->responders[responder->index].stale;
	int err;

	if (!is_proved(state, generation))
		return 0;
	err = klat_spin_until(responder, &state->forbidden, generation);
	if (err)
		return err;
	*stale += is_any_accessible(state->pages);
	*proofs += klat_thread_usage().ru_nvcsw == sleeps;
	__atomic_fetch_add(&state->proved, 1, __ATOMIC_ACQ_REL);
	return 0;
}
