/* SPDX-License-Identifier: MIT */
/* runs.csv and samples/: see docs/record.md. */
#include "record/record.h"

#include <errno.h>
#include <fcntl.h>
#include <sha256.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK_DIGITS 16
#define LONGEST_FILE "samples/longest.csv"

const char klat_record_header[] =
	"boot,order,benchmark,params,run,metric,unit,status,reason,first_sample,n,mean,stddev,min,"
	"p50,p90,p99,max,floor,cpus,placement,policy,voluntary,involuntary,minor_faults,major_"
	"faults,migrations,wait_ns,irq_res,irq_cal,irq_tlb,irq_loc,steal_ms,smi,evidence,start_ns,"
	"elapsed_ns,rows,check\n";

/* As RFC 4180 says, but without line breaks. A comma precedes every field but the first. */
static void field(FILE *out, const char *text)
{
	if (ftell(out))
		fputc(',', out);
	if (!text[strcspn(text, ",\"\r\n")]) {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text == '\n' || *text == '\r' ? ' ' : *text, out);
	}
	fputc('"', out);
}

/* No number of a row is negative. */
static void number_field(FILE *out, bool known, uint64_t value)
{
	fputc(',', out);
	if (known)
		fprintf(out, "%llu", (unsigned long long)value);
}

static void milli_field(FILE *out, bool known, unsigned __int128 milli)
{
	char text[48] = "";

	if (known)
		klat_milli_text(milli, text, sizeof(text));
	field(out, text);
}

static int64_t value_of(const struct klat_worker *worker, size_t offset)
{
	return *(const int64_t *)((const char *)worker + offset);
}

/* "writer=1;reader=2": for each role the sum of the int64_t at `offset` in struct klat_worker.
 * Empty if any of them is unknown (-1). */
static void role_field(FILE *out, const struct klat_run *run, size_t offset)
{
	fputc(',', out);
	klat_for_each_worker(worker, run)
		if (value_of(worker, offset) < 0)
			return;
	klat_for_each_worker(first, run->library->pairs) {
		int64_t sum = 0;

		if (first->index)
			continue;
		klat_for_each_worker(worker, run)
			if (!strcmp(worker->role, first->role))
				sum += value_of(worker, offset);
		fprintf(out, "%s%s=%lld", first > run->workers ? ";" : "", first->role,
			(long long)sum);
	}
}

static void policy_field(FILE *out, const struct klat_run *run)
{
	fputc(',', out);
	klat_for_each_worker(worker, run->library->pairs)
		if (!worker->index)
			fprintf(out, "%s%s=%s", worker > run->workers ? ";" : "", worker->role,
				klat_policy_obtained(worker).text);
}

static void irq_field(FILE *out, const struct klat_run *run, const char *row)
{
	fputc(',', out);
	klat_for_each_cpu(cpu, run)
		if (klat_interrupts(run, row, cpu) < 0)
			return;
	klat_for_each_cpu(cpu, run)
		fprintf(out, "%d=%lld;", cpu, (long long)klat_interrupts(run, row, cpu));
	fprintf(out, "other=%lld", (long long)klat_interrupts_elsewhere(run, row));
}

static void cpus_field(FILE *out, const struct klat_run *run)
{
	fputc(',', out);
	for (int i = 0; i < run->cpu_count && run->cpus; i++)
		fprintf(out, "%s%d", i ? ";" : "", run->cpus[i]);
}

static void evidence_fields(FILE *out, const struct klat_run *run)
{
	const struct klat_library *library = run->library;
	int64_t stolen;

	policy_field(out, run);
	role_field(out, run, offsetof(struct klat_worker, voluntary));
	role_field(out, run, offsetof(struct klat_worker, involuntary));
	role_field(out, run, offsetof(struct klat_worker, minor_faults));
	role_field(out, run, offsetof(struct klat_worker, major_faults));
	role_field(out, run, offsetof(struct klat_worker, migrations));
	role_field(out, run, offsetof(struct klat_worker, wait_ns));
	for (int row = 0; row < KLAT_IRQ_ROWS; row++)
		irq_field(out, run, klat_irq_names[row]);
	stolen = klat_stolen(run, &library->before, &library->after);
	number_field(out, stolen >= 0, stolen * 1000 / sysconf(_SC_CLK_TCK));
	number_field(out, library->before.smi >= 0 && library->after.smi >= 0,
		     library->after.smi - library->before.smi);
	fputc(',', out);
	for (int i = 0; i < library->count_count; i++)
		fprintf(out, "%s%s=%lld", i ? ";" : "", library->counts[i].name,
			(long long)library->counts[i].value);
}

/* One row without its check. `metric` is -1 in the only row of a run without a result. */
static void write_row(FILE *out, const struct klat_run *run, int metric, int64_t first, int rows)
{
	const struct klat_library *library = run->library;
	const struct klat_summary *summary = &library->summaries[metric < 0 ? 0 : metric];
	const bool sampled = metric >= 0 && klat_samples_kept(run, metric);
	char boot[KLAT_BOOT_ID_SIZE];

	klat_boot_id(boot);
	field(out, boot);
	number_field(out, true, library->common.order);
	field(out, run->benchmark->name);
	field(out, library->params);
	number_field(out, true, library->common.run);
	field(out, metric < 0 ? "" : run->benchmark->metrics[metric].name);
	field(out, klat_unit());
	field(out, klat_status_name(run->outcome->status));
	field(out, run->outcome->reason);
	number_field(out, sampled, first);
	number_field(out, true, sampled ? summary->n : 0);
	milli_field(out, sampled, summary->mean_milli);
	milli_field(out, sampled && summary->stddev_known, summary->stddev_milli);
	number_field(out, sampled, summary->min);
	number_field(out, sampled && summary->p50_known, summary->p50);
	number_field(out, sampled && summary->p90_known, summary->p90);
	number_field(out, sampled && summary->p99_known, summary->p99);
	number_field(out, sampled, summary->max);
	number_field(out, sampled, library->floor);
	cpus_field(out, run);
	field(out, library->placement ? library->placement : "");
	if (metric < 0)
		fputs(",,,,,,,,,,,,,,", out);
	else
		evidence_fields(out, run);
	number_field(out, true, library->start_ns);
	number_field(out, true, library->elapsed_ns);
	number_field(out, true, rows);
}

static int append_checked(FILE *out, const struct klat_run *run, int metric, int64_t first,
			  int rows)
{
	char hash[SHA256_DIGEST_STRING_LENGTH], *row;
	size_t size;
	FILE *memory = open_memstream(&row, &size);

	if (!memory)
		return -errno;
	write_row(memory, run, metric, first, rows);
	if (fclose(memory))
		return -ENOMEM;
	SHA256Data((const uint8_t *)row, size, hash);
	fprintf(out, "%s,%.*s\n", row, CHECK_DIGITS, hash);
	free(row);
	return 0;
}

/* The number of records of the metric in the file of samples: samples, or the pairs of a soak. */
static int64_t record_count(const struct klat_run *run, int metric)
{
	int64_t kept = klat_samples_kept(run, metric);

	return kept && run->library->soak.lap ? run->library->soak.histograms[metric].distinct
					      : kept;
}

static size_t record_size(const struct klat_run *run)
{
	return run->library->soak.lap ? sizeof(struct klat_pair) : sizeof(uint64_t);
}

char *klat_record_rows(struct klat_run *run, int64_t first)
{
	char *rows = NULL;
	size_t size;
	FILE *out = open_memstream(&rows, &size);
	int err = 0;

	if (!out)
		return NULL;
	if (!klat_has_result(run))
		err = append_checked(out, run, -1, 0, 1);
	klat_for_each_metric(m, run) {
		if (!klat_has_result(run) || err)
			break;
		err = append_checked(out, run, m, first, run->library->metrics_used);
		first += record_count(run, m);
	}
	if (fclose(out) || err) {
		free(rows);
		return NULL;
	}
	return rows;
}

/* Puts the index of the run's first record into `*first`, if the run has samples. */
static int append_samples(struct klat_run *run, int session, const char *name, int64_t *first)
{
	const size_t size = record_size(run);
	int64_t total = 0, at = 0;
	struct stat status;
	char *samples;
	int fd, err = 0;

	klat_for_each_metric(m, run)
		total += record_count(run, m);
	if (!total)
		return 0;
	samples = malloc(total * size);
	if (!samples)
		return -ENOMEM;
	klat_for_each_metric(m, run) {
		const int64_t count = record_count(run, m);

		if (run->library->soak.lap)
			memcpy(samples + at * size, run->library->soak.histograms[m].pairs,
			       count * size);
		else if (count)
			klat_samples_copy(run, m, (uint64_t *)samples + at);
		at += count;
	}
	fd = klat_file_open(session, name, KLAT_APPEND);
	if (fd < 0) {
		free(samples);
		return fd;
	}
	/* A writer that was killed may have left a part of a sample. */
	if (fstat(fd, &status))
		err = -errno;
	else if (status.st_size > INT64_MAX - (off_t)size)
		err = -EFBIG;
	else if (status.st_size % size) {
		status.st_size += size - status.st_size % size;
		err = ftruncate(fd, status.st_size) ? -errno : 0;
	}
	err = err ?: klat_append_synced(fd, samples, total * size, status.st_size);
	*first = status.st_size / size;
	close(fd);
	free(samples);
	return err;
}

static int append_rows(struct klat_run *run, int session, const char *name, int64_t first)
{
	char *rows = klat_record_rows(run, first), *text = NULL, last = '\n';
	struct stat status;
	int fd, err;

	if (!rows)
		return -ENOMEM;
	fd = klat_file_open(session, name, KLAT_APPEND);
	if (fd < 0) {
		free(rows);
		return fd;
	}
	if (fstat(fd, &status) ||
	    (status.st_size && pread(fd, &last, 1, status.st_size - 1) != 1)) {
		err = -errno;
	} else {
		/* The part of a row that a killed writer left stays on its own line. Its check
		 * fails, so readers ignore it. */
		const char *begin = !status.st_size ? klat_record_header : last == '\n' ? "" : "\n";

		err = asprintf(&text, "%s%s", begin, rows) < 0 ? -ENOMEM : 0;
	}
	err = err ?: klat_append_synced(fd, text, strlen(text), status.st_size);
	close(fd);
	free(text);
	free(rows);
	return err;
}

/* Without rows, the samples are of no use, and would keep a full disk full. */
static void take_back_samples(const struct klat_run *run, int session, const char *name,
			      int64_t first)
{
	int fd = klat_file_open(session, name, O_WRONLY);

	if (fd < 0)
		return;
	if (ftruncate(fd, first * record_size(run)))
		klat_warn(run, "cannot shorten %s/%s: %s", run->library->common.record, name,
			  strerror(errno));
	close(fd);
}

int klat_record_append(struct klat_run *run, int session)
{
	char samples[128];
	const char *name = samples;
	int64_t first = -1;
	int err = klat_session_lock(run, session), longest_err = 0;

	if (err)
		return err;
	snprintf(samples, sizeof(samples), "samples/%s.%s", run->benchmark->name,
		 run->library->soak.lap ? "histogram" : "u64");
	if (klat_has_result(run))
		err = append_samples(run, session, samples, &first);
	/* With many long samples, these lines are most of the segment. If the disk is full, record
	 * the segment without them. */
	if (!err && run->library->soak.histograms)
		longest_err = klat_longest_append(run, session, LONGEST_FILE);
	if (!err) {
		name = "runs.csv";
		err = append_rows(run, session, name, first);
		if (err && first >= 0)
			take_back_samples(run, session, samples, first);
	}
	flock(session, LOCK_UN);
	if (!err && longest_err)
		return klat_error(
			run, -longest_err,
			"cannot record into %s: " LONGEST_FILE
			": %s; the figures of this segment were kept without its longest samples",
			run->library->common.record, klat_file_error(-longest_err));
	return err ? klat_error(run, -err,
				"cannot record into %s: %s: %s; nothing of this %s was kept",
				run->library->common.record, name, klat_file_error(-err),
				run->library->soak.lap ? "segment" : "run")
		   : 0;
}
