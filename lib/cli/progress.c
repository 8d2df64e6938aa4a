/* SPDX-License-Identifier: MIT */
/* A soak as text: one line while it runs, and a few at its end. */
#include "cli/cli.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int print_time(FILE *out, int64_t seconds)
{
	return fprintf(out, "%" PRId64 ":%02d:%02d", seconds / 3600, (int)(seconds / 60 % 60),
		       (int)(seconds % 60));
}

/* A time in strftime()'s `format`, as local time. Empty if it is unknown. */
static void time_text(int64_t ns, const char *format, char *text, size_t size)
{
	const time_t seconds = ns / KLAT_NS_PER_S;
	struct tm local;

	if (!ns || !localtime_r(&seconds, &local) || !strftime(text, size, format, &local))
		*text = 0;
}

static void print_metric(const struct klat_run *run, int metric, const char *format, FILE *out)
{
	const struct klat_totals *totals = &run->library->soak.histograms[metric].totals;
	const int64_t limit = run->library->common.limit_ns;
	char when[64];

	fprintf(out, "%s %" PRId64, run->benchmark->metrics[metric].name, totals->n);
	if (limit)
		fprintf(out, ", above %.10g us: %" PRId64, limit / 1e3, totals->above);
	time_text(totals->worst_ns, format, when, sizeof(when));
	fprintf(out, ", longest %.2f us%s%s", klat_ticks_to_ns(run, totals->worst.value) / 1e3,
		*when ? " at " : "", when);
}

void klat_soak_progress_text(const struct klat_run *run, int64_t seconds)
{
	const struct klat_common *common = &run->library->common;

	if (common->quiet || !isatty(STDERR_FILENO))
		return;
	/* Without wrapping: the next line overwrites this one. */
	fputs("\r\033[?7l", stderr);
	print_time(stderr, seconds);
	fputs(" of ", stderr);
	print_time(stderr, common->soak_s);
	klat_for_each_metric(m, run) {
		fputs("  ", stderr);
		print_metric(run, m, "%H:%M:%S", stderr);
		break;
	}
	fputs("\033[K\033[?7h", stderr);
}

void klat_soak_progress_end(const struct klat_run *run)
{
	if (run->library->soak.began && !run->library->common.quiet && isatty(STDERR_FILENO))
		fputc('\n', stderr);
}

void klat_soak_text(const struct klat_run *run, FILE *out)
{
	const struct klat_soak *soak = &run->library->soak;
	const struct klat_common *common = &run->library->common;

	fprintf(out, "%s: soaked ", run->benchmark->name);
	print_time(out, soak->elapsed_ns / KLAT_NS_PER_S);
	fputs(" of ", out);
	print_time(out, common->soak_s);
	fprintf(out, ", %" PRId64 " segment%s in %s\n", soak->segments,
		soak->segments == 1 ? "" : "s", common->record);
	klat_for_each_metric(m, run)
		if (soak->histograms[m].totals.n) {
			fputs("  ", out);
			print_metric(run, m, "%F %T", out);
			fputc('\n', out);
		}
}
