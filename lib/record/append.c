/* SPDX-License-Identifier: MIT */
/* Appending to the files of a session. */
#include "record/record.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int klat_append_synced(int fd, const void *data, size_t size, off_t before)
{
	int err = klat_write_whole(fd, data, size);

	if (!err && fdatasync(fd))
		err = -errno;
	if (err && ftruncate(fd, before))
		return err;
	return err;
}

int klat_longest_append(struct klat_run *run, int session, const char *name)
{
	const struct klat_soak *soak = &run->library->soak;
	struct stat status;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	int fd, err = 0;

	if (!out)
		return -ENOMEM;
	fd = klat_file_open(session, name, KLAT_APPEND);
	if (fd < 0 || fstat(fd, &status)) {
		err = fd < 0 ? fd : -errno;
		goto out;
	}
	if (!status.st_size)
		fputs("benchmark,run,metric,index,time_ns,cpu,value,involuntary,steal_ticks,smi\n",
		      out);
	klat_for_each_metric(m, run)
		for (int64_t k = 0; k < soak->histograms[m].kept_count; k++) {
			const struct klat_kept *kept = &soak->histograms[m].kept[k];
			const struct klat_worker *worker =
				klat_worker_of(run, m, kept->series) ?: soak->stamping;
			const int64_t time_ns = klat_soak_time_ns(run, kept);

			fprintf(out, "%s,%lld,%s,%lld,", run->benchmark->name,
				(long long)run->library->common.run,
				run->benchmark->metrics[m].name, (long long)kept->index);
			if (worker && time_ns)
				fprintf(out, "%lld,%d,", (long long)time_ns, worker->cpu);
			else
				fputs(",,", out);
			fprintf(out, "%llu,%lld,", (unsigned long long)kept->value,
				(long long)kept->involuntary);
			if (kept->stolen >= 0)
				fprintf(out, "%lld", (long long)kept->stolen);
			fputc(',', out);
			if (kept->smi >= 0)
				fprintf(out, "%lld", (long long)kept->smi);
			fputc('\n', out);
		}
out:
	if (fclose(out) && !err)
		err = -ENOMEM;
	err = err ?: klat_append_synced(fd, text, size, status.st_size);
	if (fd >= 0)
		close(fd);
	free(text);
	return err;
}
