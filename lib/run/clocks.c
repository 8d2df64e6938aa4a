/* SPDX-License-Identifier: MIT */
/* The clocks at one moment, and whether a suspension stopped them. */
#include "run/run.h"

#include <math.h>

static int64_t count_suspensions(void)
{
	static const char *const names[] = { "success", "fail" };
	int64_t sum = 0;

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(names); i++) {
		const int64_t count =
			klat_read_count(klat_path("/sys/power/suspend_stats/%s", names[i]));

		if (count < 0)
			return -1;
		sum += count;
	}
	return sum;
}

/* An interruption between the readings adds its length, so take the narrowest of several. */
void klat_clocks_take(struct klat_clocks *clocks)
{
	clocks->width_ns = INT64_MAX;
	for (int i = 0; i < 5; i++) {
		struct klat_clocks now = { .at_ns = klat_now_ns(),
					   .boot_ns = klat_clock_ns(CLOCK_BOOTTIME),
					   .raw_ns = klat_clock_ns(CLOCK_MONOTONIC_RAW),
					   .clock_ns = klat_clock_ns(CLOCK_REALTIME),
					   .ticks = klat_ticks() };

		now.width_ns = klat_now_ns() - now.at_ns;
		if (now.width_ns < clocks->width_ns)
			*clocks = now;
	}
	clocks->suspensions = count_suspensions();
}

/* CLOCK_MONOTONIC stands still while the machine is suspended, and CLOCK_BOOTTIME does not. */
int64_t klat_suspended_ms(const struct klat_clocks *before, const struct klat_clocks *after)
{
	return llround(1e-6 * (after->boot_ns - before->boot_ns - (after->at_ns - before->at_ns)));
}

void klat_clocks_wait(const struct klat_clocks *before, struct klat_clocks *after)
{
	enum { USUALLY_COUNTED_NS = 100000000 };

	if (klat_was_suspended(before, after))
		return;
	klat_nap(USUALLY_COUNTED_NS);
	after->suspensions = count_suspensions();
}

bool klat_was_suspended(const struct klat_clocks *before, const struct klat_clocks *after)
{
	return klat_suspended_ms(before, after) > 0 ||
	       (before->suspensions >= 0 && after->suspensions > before->suspensions);
}
