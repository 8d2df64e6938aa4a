/* SPDX-License-Identifier: MIT */
/* A run and a benchmark as JSON, for other programs. */
#include "cli/cli.h"

#include <errno.h>
#include <jansson.h>

/* Takes the reference to `object`, which may be NULL. */
static int print(json_t *object, FILE *out)
{
	int err = object ? json_dumpf(object, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) : -1;

	fputc('\n', out);
	json_decref(object);
	return err ? -ENOMEM : 0;
}

static json_t *statistic(const struct klat_run *run, json_t *object, const char *name, bool known,
			 double value)
{
	char ns[32];

	json_object_set_new(object, name, known ? json_real(value) : json_null());
	if (klat_timed()) {
		snprintf(ns, sizeof(ns), "%s_ns", name);
		json_object_set_new(object, ns,
				    known ? json_real(klat_ticks_to_ns(run, value)) : json_null());
	}
	return object;
}

/* Null and n 0 where the metric is not measurable. */
static json_t *metric_object(const struct klat_run *run, int metric)
{
	const struct klat_summary *summary = &run->library->summaries[metric];
	bool known = klat_measurable(run, metric);
	json_t *object = json_pack("{s:s, s:I}", "name", run->benchmark->metrics[metric].name, "n",
				   (json_int_t)summary->n);

	statistic(run, object, "mean", known, (double)summary->mean_milli / 1e3);
	statistic(run, object, "stddev", summary->stddev_known,
		  (double)summary->stddev_milli / 1e3);
	statistic(run, object, "min", known, summary->min);
	statistic(run, object, "p50", summary->p50_known, summary->p50);
	statistic(run, object, "p90", summary->p90_known, summary->p90);
	statistic(run, object, "p99", summary->p99_known, summary->p99);
	statistic(run, object, "max", known, summary->max);
	return object;
}

/* A negative count is unknown. */
static json_t *count_or_null(int64_t count)
{
	return count < 0 ? json_null() : json_integer(count);
}

static json_t *worker_object(const struct klat_worker *worker)
{
	return json_pack(
		"{s:s, s:i, s:i, s:i, s:s, s:i, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:o, s:o, s:I}",
		"role", worker->role, "pair", worker->run->pair + 1, "index", worker->index, "cpu",
		worker->cpu, "policy", klat_policy_name(worker->policy_obtained), "priority",
		worker->priority_obtained, "runtime_ns", (json_int_t)worker->runtime_obtained,
		"period_ns", (json_int_t)worker->period_obtained, "pinned",
		worker->pinned && !worker->strayed, "voluntary", (json_int_t)worker->voluntary,
		"involuntary", (json_int_t)worker->involuntary, "minor_faults",
		(json_int_t)worker->minor_faults, "major_faults", (json_int_t)worker->major_faults,
		"migrations", count_or_null(worker->migrations), "wait_ns",
		count_or_null(worker->wait_ns), "floor", (json_int_t)worker->floor);
}

static json_t *evidence_object(struct klat_run *run)
{
	const struct klat_library *library = run->library;
	json_t *evidence = json_object(), *workers = json_array(), *counts = json_object(),
	       *interrupts = json_object();

	klat_for_each_worker(worker, run)
		json_array_append_new(workers, worker_object(worker));
	for (int i = 0; i < library->count_count; i++)
		json_object_set_new(counts, library->counts[i].name,
				    json_integer(library->counts[i].value));
	for (int row = 0; row < KLAT_IRQ_ROWS; row++) {
		json_t *cpus = json_object();

		for (int i = 0; i < run->cpu_count && library->after.irq_present[row]; i++) {
			char cpu[16];

			snprintf(cpu, sizeof(cpu), "%d", run->cpus[i]);
			json_object_set_new(cpus, cpu,
					    count_or_null(klat_interrupts(run, klat_irq_names[row],
									  run->cpus[i])));
		}
		json_object_set_new(interrupts, klat_irq_names[row], cpus);
	}
	json_object_set_new(evidence, "workers", workers);
	json_object_set_new(evidence, "counts", counts);
	json_object_set_new(evidence, "interrupts", interrupts);
	json_object_set_new(evidence, "smi",
			    library->before.smi < 0
				    ? json_string("unavailable")
				    : json_integer(library->after.smi - library->before.smi));
	json_object_set_new(evidence, "memory_bytes", json_integer(library->measured_memory));
	json_object_set_new(evidence, "sample_bytes", json_integer(library->samples_size));
	return evidence;
}

int klat_json_run(struct klat_run *run, FILE *out)
{
	const struct klat_library *library = run->library;
	bool measured = klat_has_result(run);
	json_t *metrics = json_array(), *cpus = json_array(), *object;

	klat_for_each_metric(m, run)
		if (measured)
			json_array_append_new(metrics, metric_object(run, m));
	for (int i = 0; i < run->cpu_count && run->cpus; i++)
		json_array_append_new(cpus, json_integer(run->cpus[i]));
	object = json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s, s:f, s:o, s:s, s:s, s:I, s:o, s:o}",
			   "program", run->benchmark->name, "version", KLAT_VERSION, "parameters",
			   library->params, "cpus", cpus, "placement",
			   library->placement ? library->placement : "", "mode", klat_mode(),
			   "unit", klat_unit(), "tsc_khz", run->counter_khz, "floor",
			   klat_emulated() ? json_null() : json_integer(library->floor), "status",
			   klat_status_name(run->outcome->status), "reason", run->outcome->reason,
			   "elapsed_ns", (json_int_t)library->elapsed_ns, "evidence",
			   measured ? evidence_object(run) : json_object(), "metrics", metrics);
	return print(object, out);
}

static json_t *option_array(const struct klat_benchmark *benchmark,
			    const struct klat_option *options, int count)
{
	json_t *array = json_array();

	for (int i = 0; i < count && options[i].help; i++) {
		char argument[512], help[640], buffer[KLAT_VALUE_SIZE];

		klat_option_argument(benchmark, &options[i], argument, sizeof(argument));
		klat_option_help(benchmark, &options[i], help, sizeof(help));
		json_array_append_new(
			array, json_pack("{s:s, s:s, s:s, s:s}", "name", options[i].name,
					 "argument", argument, "help", help, "default",
					 klat_option_default(benchmark, &options[i], buffer)));
	}
	return array;
}

int klat_json_benchmark(const struct klat_benchmark *benchmark, FILE *out)
{
	json_t *metrics = json_array(), *figures = json_array();
	int common_count;
	const struct klat_option *common = klat_options_common(benchmark, &common_count);

	for (const struct klat_metric *metric = benchmark->metrics;
	     metric < benchmark->metrics + benchmark->metric_count; metric++)
		json_array_append_new(metrics,
				      json_pack("{s:s, s:s, s:s?, s:s?, s:i, s:b}", "name",
						metric->name, "summary", metric->summary,
						"begins_in", metric->begins_in, "ends_in",
						metric->ends_in, "mean_of", metric->mean_of ?: 1,
						"from_deadline", metric->from_deadline));
	for (const struct klat_published *row = benchmark->published;
	     row < benchmark->published + benchmark->published_count; row++)
		json_array_append_new(figures,
				      json_pack("{s:s, s:s, s:f, s:s, s:s}", "metric", row->metric,
						"params", row->params ?: "", "value", row->value,
						"unit", row->unit, "about", row->about));
	return print(json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:s, s:o}", "name",
			       benchmark->name, "summary", benchmark->summary, "description",
			       benchmark->description, "metrics", metrics, "options",
			       option_array(benchmark, benchmark->options, benchmark->option_count),
			       "common_options", option_array(benchmark, common, common_count),
			       "exit_status", klat_exit_statuses, "examples",
			       benchmark->examples ? benchmark->examples : "", "published",
			       figures),
		     out);
}
