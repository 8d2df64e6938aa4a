/* SPDX-License-Identifier: MIT */
#include "arch/isa.h"

static uint64_t shortest_bracket(void (*take_turns)(uint64_t turns), uint64_t turns)
{
	uint64_t shortest = UINT64_MAX;

	/* Interrupts lengthen some of the tries. */
	for (int try = 0; try < 20; try++) {
		uint64_t begin = klat_stamp_begin(), bracket;

		take_turns(turns);
		bracket = klat_stamp_begin() - begin;
		shortest = bracket < shortest ? bracket : shortest;
	}
	return shortest;
}

bool klat_arch_counts(void (*take_turns)(uint64_t turns))
{
	const uint64_t more = 101, overhead = shortest_bracket(take_turns, more) - 2 * more;

	for (uint64_t turns = 2 * more; turns <= 10 * more; turns += more)
		if (shortest_bracket(take_turns, turns) != 2 * turns + overhead)
			return false;
	return true;
}
