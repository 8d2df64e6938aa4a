/* SPDX-License-Identifier: MIT */
/* A spun pause that does not end at a step of a coarse counter. */
#include "pause.h"

#include "machine/machine.h"

void klat_take_turns(uint64_t turns)
{
	for (uint64_t turn = 0; turn < turns; turn++)
		__asm__ volatile("" ::: "memory");
}

uint64_t klat_turns_within(uint64_t ticks, int64_t step)
{
	const uint64_t enough = 32 * step; /* a step is then 3 % of the time */
	uint64_t most = 0;

	/* An interruption makes a try too small. */
	for (int try = 0; try < 10; try++) {
		uint64_t turns, taken;

		for (turns = 64, taken = 0; taken < enough; turns *= 2) {
			uint64_t begin = klat_ticks();

			klat_take_turns(2 * turns);
			taken = klat_ticks() - begin;
		}
		most = turns * ticks / taken > most ? turns * ticks / taken : most;
	}
	return most;
}

struct klat_pause klat_pause_prepare(const struct klat_run *run, int64_t ns, int64_t random_ns)
{
	struct klat_pause pause = { .ticks = klat_ns_to_ticks(run, ns),
				    .random_ticks = klat_ns_to_ticks(run, random_ns) };

	if (klat_counter_is_coarse()) {
		const int64_t step = klat_counter_quantum();

		pause.turns = klat_turns_within(2 * step, step);
	}
	return pause;
}

void klat_pause(const struct klat_pause *pause, uint64_t *seed)
{
	klat_spin(pause->ticks + klat_draw(seed) % (pause->random_ticks + 1));
	klat_take_turns(klat_draw(seed) % (pause->turns + 1));
}
