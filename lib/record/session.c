/* SPDX-License-Identifier: MIT */
/* session.json. The first program of a session describes the session. Each later program checks
 * that the boot, the label and its own build are the same. */
#include "record/record.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <linux/magic.h>
#include <math.h>
#include <sha256.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define SESSION_FILE "session.json"
#define MOST_SESSION_BYTES (1 << 20)

enum {
	/* A program holds the lock until the disk has its data. */
	LOCK_LIMIT_MS = 5000,
	LOCK_LIMIT_EMULATED_MS = 50000
};

/* klat_error() for a session that this run cannot join. The message is the session's directory,
 * then `what`. */
#define refuse(run, what, ...)                                                                     \
	klat_error(run, EINVAL, "%s" what ": record into another directory",                       \
		   (run)->library->common.record, ##__VA_ARGS__)

static json_t *own_hash(struct klat_run *run)
{
	char hash[SHA256_DIGEST_STRING_LENGTH];

	if (SHA256File("/proc/self/exe", hash))
		return json_string(hash);
	klat_error(run, errno, "cannot record in %s: cannot read this program, /proc/self/exe: %m",
		   run->library->common.record);
	return NULL;
}

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* A random number of the boot. Linux 6.6 and later draws one for the cgroup file system of version
 * 2, which all containers share. Earlier kernels have 0, or a device number of 32 bits. */
static uint64_t cgroup_id(void)
{
	static const char *const places[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
	struct statfs system;

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(places); i++)
		if (!statfs(places[i], &system) && system.f_type == CGROUP2_SUPER_MAGIC &&
		    system.f_fsid.__val[1])
			return (uint32_t)system.f_fsid.__val[0] |
			       (uint64_t)(uint32_t)system.f_fsid.__val[1] << 32;
	return 0;
}

/* systemd-nspawn and LXC cover the file: each start of a container has another id. Then the id has
 * the digits of cgroup_id(), or else of the time of the boot in seconds. A step of the clock
 * changes this time, and so does a time namespace. */
bool klat_boot_id(char boot[static KLAT_BOOT_ID_SIZE])
{
	klat_read_line(BOOT_ID, boot, KLAT_BOOT_ID_SIZE);
	if (*boot && !klat_is_in_proc(BOOT_ID)) {
		const uint64_t began =
			(klat_clock_ns(CLOCK_REALTIME) - klat_clock_ns(CLOCK_BOOTTIME)) /
			1000000000;

		snprintf(boot, KLAT_BOOT_ID_SIZE, "00000000-0000-4000-8000-%012" PRIx64,
			 (cgroup_id() ?: began) & 0xffffffffffff);
	}
	if (strspn(boot, "0123456789abcdef-") == KLAT_BOOT_ID_SIZE - 1 && boot[strspn(boot, "0-")])
		return true;
	boot[0] = 0;
	return false;
}

static json_t *tsc_object(const struct klat_counter *tsc)
{
	const bool second = tsc->second_khz;

	return json_pack("{s:s, s:f, s:s, s:f, s:o, s:o, s:o, s:o, s:b, s:I}", "counter",
			 klat_arch_counter(), "khz", tsc->khz, "method", "clock_monotonic_raw",
			 "uncertainty_ppm", tsc->uncertainty_ppm, "second_khz",
			 second ? json_real(tsc->second_khz) : json_null(), "second_method",
			 second ? json_string(tsc->second_method) : json_null(), "difference_ppm",
			 second ? json_real(tsc->difference_ppm) : json_null(), "independent",
			 second ? json_boolean(tsc->independent) : json_null(), "invariant",
			 tsc->invariant, "quantum", (json_int_t)tsc->quantum);
}

static int count_online(void)
{
	klat_cpu_set online;

	if (klat_cpus_online(&online))
		klat_cpus_allowed(&online);
	return klat_cpu_weight(&online);
}

static json_t *describe(struct klat_run *run, const char *boot)
{
	const struct klat_common *common = &run->library->common;
	struct utsname names;
	char created[32];
	time_t now = time(NULL);
	struct tm utc;
	json_t *seed = common->seed >= 0 ? json_integer(common->seed) : json_null(), *json;

	if (uname(&names)) {
		klat_error(run, errno, "cannot record into %s: uname() failed: %m", common->record);
		return NULL;
	}
	strftime(created, sizeof(created), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
	klat_counter_calibrate(&run->library->counter);
	json = json_pack("{s:i, s:s, s:s, s:s, s:o, s:s, s:o, s:s, s:s, s:s, s:s, s:o, s:i, s:s, "
			 "s:s, s:s, s:o, s:o, s:b, s:{}, s:{}}",
			 "schema", KLAT_SCHEMA, "klat_version", KLAT_VERSION, "klat_commit",
			 KLAT_COMMIT, "label", common->label ? common->label : names.release,
			 "seed", seed, "created", created, "machine_id", klat_machine_id(),
			 "boot_id", boot, "kernel_release", names.release, "kernel_version",
			 names.version, "architecture", names.machine, "cpu_model",
			 klat_cpu_model(), "cpus_online", count_online(), "preemption",
			 klat_preemption(&names), "mode", klat_mode(), "unit", klat_unit(), "tsc",
			 tsc_object(&run->library->counter), "inherited", klat_inherited(),
			 "under_load", common->under_load, "libraries", "programs");
	if (!json)
		klat_error(run, EINVAL,
			   "cannot record into %s: a text of uname() is not valid UTF-8",
			   common->record);
	return json;
}

static int write_session(struct klat_run *run, int session, json_t *json)
{
	char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(12)), *line;
	int err = -ENOMEM;

	if (text && asprintf(&line, "%s\n", text) >= 0) {
		err = klat_file_replace(session, SESSION_FILE, line, strlen(line));
		free(line);
	}
	free(text);
	return err ? klat_error(run, -err, "cannot write " SESSION_FILE " in %s: %s",
				run->library->common.record, klat_file_error(-err))
		   : 0;
}

static bool is_sane(const struct klat_counter *tsc)
{
	return klat_frequency_is_possible(tsc->khz) && tsc->quantum >= 1 &&
	       tsc->quantum <= INT64_C(1) << 40 && fabs(tsc->uncertainty_ppm) <= 1e18 &&
	       fabs(tsc->difference_ppm) <= 1e18 &&
	       (!tsc->second_khz || klat_frequency_is_possible(tsc->second_khz)) &&
	       !tsc->second_method[strspn(tsc->second_method,
					  "abcdefghijklmnopqrstuvwxyz0123456789_")];
}

static int read_tsc(struct klat_run *run, const json_t *json)
{
	struct klat_counter *tsc = &run->library->counter;
	const json_t *object = json_object_get(json, "tsc");
	const char *method = json_string_value(json_object_get(object, "second_method"));

	tsc->khz = json_number_value(json_object_get(object, "khz"));
	tsc->uncertainty_ppm = json_number_value(json_object_get(object, "uncertainty_ppm"));
	tsc->second_khz = json_number_value(json_object_get(object, "second_khz"));
	tsc->difference_ppm = json_number_value(json_object_get(object, "difference_ppm"));
	tsc->independent = json_is_true(json_object_get(object, "independent"));
	tsc->quantum = json_integer_value(json_object_get(object, "quantum"));
	tsc->invariant = json_is_true(json_object_get(object, "invariant"));
	snprintf(tsc->second_method, sizeof(tsc->second_method), "%s", method ? method : "");
	return is_sane(tsc) ? 0 : refuse(run, "/" SESSION_FILE " holds an impossible calibration");
}

/* Compares nothing if the setting was not readable then, or is not readable now. */
static int check_setting(struct klat_run *run, int session, enum klat_setting_name name)
{
	const struct klat_setting *setting = &klat_settings[name];
	char then[KLAT_SETTING_SIZE], now[KLAT_SETTING_SIZE], *text = NULL;
	size_t size = 0;

	if (klat_file_read(session, klat_path("environment%s", setting->file), sizeof(then), &text,
			   &size))
		text = NULL;
	klat_setting_in(name, text ?: "", then);
	free(text);
	klat_setting_read(name, now);
	return *then && *now && strcmp(then, now)
		       ? refuse(run, " began with the %s %s, and now it is %s", setting->noun, then,
				now)
		       : 0;
}

static int check_same(struct klat_run *run, int session, const json_t *json, const char *boot)
{
	const char *boot_then = json_string_value(json_object_get(json, "boot_id"));
	const char *label_then = json_string_value(json_object_get(json, "label"));
	const char *label = run->library->common.label;
	const bool under_load = run->library->common.under_load;
	const json_t *load_then = json_object_get(json, "under_load");

	if (json_integer_value(json_object_get(json, "schema")) != KLAT_SCHEMA)
		return refuse(run, "/" SESSION_FILE " is not of schema %d", KLAT_SCHEMA);
	if (!boot_then || strcmp(boot_then, boot))
		return refuse(run, " belongs to another boot, and a session is one boot");
	if (label && (!label_then || strcmp(label, label_then)))
		return refuse(run, " has the label '%s', not '%s'", label_then ?: "", label);
	/* Older sessions lack it. */
	if (load_then && json_is_true(load_then) != under_load)
		return refuse(run, " has runs %s --under-load, but this run %s it",
			      under_load ? "without" : "with", under_load ? "has" : "is without");
	for (int name = 0; name < KLAT_SETTINGS; name++)
		if (check_setting(run, session, name))
			return -EINVAL;
	return 0;
}

/* Whether a difference of this value can change the run: see _is_effective() in
 * klat.compare.conditions. */
static bool is_effective(const struct klat_run *run, const char *name)
{
	static const char *const of_ordinary_threads[] = { "nice", "autogroup_nice", "slice_ns",
							   "cpu.weight", "cpu_cgroup_depth" };

	if (!strcmp(name, "lo_mtu"))
		return !strcmp(run->benchmark->name, "transport");
	if (!strcmp(name, KLAT_INHERITED_LATENCY))
		return run->library->common.dma_latency < 0;
	if (!strcmp(name, "rt_cgroup_depth") || !strcmp(name, KLAT_INHERITED_RT))
		return klat_is_real_time(run);
	for (size_t i = 0; i < KLAT_ARRAY_SIZE(of_ordinary_threads); i++)
		if (!strcmp(name, of_ordinary_threads[i]))
			return !klat_is_real_time(run);
	return true;
}

/* All runs of a session have the same values. Sessions of earlier versions lack some. */
static int check_inherited(struct klat_run *run, const json_t *json)
{
	json_t *inherited = klat_inherited(), *value;
	const json_t *recorded = json_object_get(json, "inherited");
	const char *name, *then;
	int err = 0;

	json_object_foreach(inherited, name, value) {
		then = json_string_value(json_object_get(recorded, name));
		if (err || !then || !strcmp(then, json_string_value(value)) ||
		    !is_effective(run, name))
			continue;
		if (!strcmp(name, KLAT_INHERITED_LATENCY)) {
			klat_disturbed(run,
				       "the request of other programs in /dev/cpu_dma_latency is "
				       "%s, and was %s when the session began",
				       json_string_value(value), then);
			continue;
		}
		err = refuse(run, " has runs that inherited %s %s, and this run inherits %s", name,
			     then, json_string_value(value));
	}
	json_decref(inherited);
	return err;
}

/* Take the value of this program into an object of session.json, or refuse if it has another one.
 */
static int join(struct klat_run *run, json_t *object, json_t *value, const char *before,
		const char *after, bool *fresh)
{
	const json_t *known = json_object_get(object, run->benchmark->name);

	if (known && !json_equal(known, value)) {
		json_decref(value);
		return refuse(run, " has runs of %s%s%s", before, run->benchmark->name, after);
	}
	*fresh |= !known;
	json_object_set_new(object, run->benchmark->name, value);
	return 0;
}

/* Refuse another build of a program that the session has, or other libraries. Add a program that it
 * does not have. */
static int join_programs(struct klat_run *run, int session, json_t *json, bool fresh)
{
	json_t *programs = json_object_get(json, "programs"),
	       *libraries = json_object_get(json, "libraries"), *hash = own_hash(run);
	int err;

	if (!hash)
		return -EIO;
	if (!json_is_object(programs)) {
		json_decref(hash);
		return refuse(run, "/" SESSION_FILE " names no programs");
	}
	err = join(run, programs, hash, "another build of ", "", &fresh);
	/* Sessions of earlier versions record none. */
	if (!err && libraries)
		err = join(run, libraries, klat_libraries(), "", " with other libraries", &fresh);
	return err || !fresh ? err : write_session(run, session, json);
}

static json_t *load(struct klat_run *run, int session, bool *missing)
{
	char *text;
	size_t size;
	int err = klat_file_read(session, SESSION_FILE, MOST_SESSION_BYTES, &text, &size);
	json_error_t error;
	json_t *json = NULL;

	*missing = err == -ENOENT;
	if (*missing)
		return NULL;
	if (!err) {
		json = json_loadb(text, size, 0, &error);
		free(text);
	}
	if (!json)
		klat_error(run, err ? -err : EINVAL, "cannot read %s/" SESSION_FILE ": %s",
			   run->library->common.record, err ? klat_file_error(-err) : error.text);
	return json;
}

static int join_locked(struct klat_run *run, int session)
{
	char boot[KLAT_BOOT_ID_SIZE];
	bool missing;
	json_t *json = load(run, session, &missing);
	int err;

	if (!json && !missing)
		return -EINVAL;
	if (!klat_boot_id(boot)) {
		json_decref(json);
		return klat_error(
			run, EIO,
			"cannot record into %s: " BOOT_ID
			" has no boot id, and a session needs one; mount the kernel's /proc",
			run->library->common.record);
	}
	if (missing) {
		err = klat_environment_capture(run, session, run->library->common.record);
		if (err)
			return err;
		json = describe(run, boot);
		if (!json)
			return -EINVAL;
	} else {
		err = check_same(run, session, json, boot) ?: check_inherited(run, json) ?:
			read_tsc(run, json);
	}
	err = err ?: join_programs(run, session, json, missing);
	json_decref(json);
	return err;
}

int klat_session_lock(struct klat_run *run, int session)
{
	const int limit_ms = klat_emulated() ? LOCK_LIMIT_EMULATED_MS : LOCK_LIMIT_MS;
	const char *path = run->library->common.record;
	/* A signal during a soak ends it only after its segment is recorded. */
	const bool soaks = run->library->soak.histograms;
	char holder[64];
	int err;

	if (!soaks)
		klat_signals_open();
	err = klat_lock(session, limit_ms);
	if (!soaks)
		klat_signals_close();
	if (err == -EWOULDBLOCK) {
		klat_lock_holder(session, holder, sizeof(holder));
		return klat_error(run, -err,
				  "cannot record into %s: %s has held its lock for %d s; end that "
				  "process, or record into another directory",
				  path, holder, limit_ms / 1000);
	}
	return err ? klat_error(run, -err, "cannot lock %s: %m", path) : 0;
}

/* With a character that changes the direction of text, a label can look like another one. These are
 * U+061C, U+200E, U+200F, U+202A to U+202E and U+2066 to U+2069, here in UTF-8. */
static bool changes_direction(const char *label)
{
	for (const unsigned char *c = (const unsigned char *)label; *c; c++) {
		if (c[0] == 0xd8 && c[1] == 0x9c)
			return true;
		if (c[0] == 0xe2 && c[1] == 0x80 &&
		    (c[2] == 0x8e || c[2] == 0x8f || (c[2] >= 0xaa && c[2] <= 0xae)))
			return true;
		if (c[0] == 0xe2 && c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9)
			return true;
	}
	return false;
}

int klat_session_join(struct klat_run *run)
{
	const char *label = run->library->common.label;
	json_t *text = json_string(label ?: "");
	int session, err;

	if (!text)
		return klat_error(run, EINVAL, "the label is not valid UTF-8");
	json_decref(text);
	if (label && changes_direction(label))
		return klat_error(run, EINVAL,
				  "the label holds a character that changes the direction of text");
	session = klat_record_directory(run);
	if (session < 0)
		return session;
	err = klat_session_lock(run, session);
	if (!err) {
		err = join_locked(run, session);
		flock(session, LOCK_UN);
	}
	if (err) {
		close(session);
		return err;
	}
	return session;
}
