/* SPDX-License-Identifier: MIT */
/* Identifies the machine and its kinds of cores. */
#include "record/record.h"

#include <sha256.h>
#include <stdlib.h>
#include <string.h>

/* The content of /etc/machine-id in an image until its first boot, see machine-id(5). */
#define NO_MACHINE_ID_YET "uninitialized"

/* machine-id(5) asks not to publish the id itself. A board without one can have a serial number.
 * Other ids are not stable: only root can read product_uuid, and MAC addresses can be random. */
json_t *klat_machine_id(void)
{
	char line[256], salted[300], hash[SHA256_DIGEST_STRING_LENGTH];
	const char *salt = "klat:";

	/* An image, and firmware without a number, can have zeros. */
	klat_read_line("/etc/machine-id", line, sizeof(line));
	if (!line[strspn(line, "0")] || !strcmp(line, NO_MACHINE_ID_YET)) {
		salt = "klat:serial-number:";
		klat_read_line("/proc/device-tree/serial-number", line, sizeof(line));
		if (!line[strspn(line, "0")])
			return json_null();
	}
	snprintf(salted, sizeof(salted), "%s%s", salt, line);
	SHA256Data((const uint8_t *)salted, strlen(salted), hash);
	hash[32] = 0;
	return json_string(hash);
}

static bool names_a_core(const char *line)
{
	static const char *const keys[] = { "CPU implementer", "CPU variant", "CPU part",
					    "CPU revision",    "mvendorid",   "marchid",
					    "mimpid",          "uarch" };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(keys); i++)
		if (!strncmp(line, keys[i], strlen(keys[i])))
			return true;
	return false;
}

/* The board, and each different line of /proc/cpuinfo that names a kind of core. A machine can have
 * several kinds. */
static json_t *board_and_cores(char *cpuinfo)
{
	char text[2048] = "", *line;
	size_t length = klat_read_line("/proc/device-tree/model", text, sizeof(text) / 2)
				? strlen(text)
				: 0;

	while ((line = strsep(&cpuinfo, "\n"))) {
		char *value = strchr(line, ':'), entry[128];

		if (!value || !names_a_core(line))
			continue;
		snprintf(entry, sizeof(entry), "%.*s%s", (int)strcspn(line, "\t:"), line,
			 value + 1);
		if (!strstr(text, entry) && length + strlen(entry) + 3 < sizeof(text))
			length += sprintf(text + length, "%s%s", length ? ", " : "", entry);
	}
	return length ? json_string(text) : NULL;
}

json_t *klat_cpu_model(void)
{
	char *text = klat_read_file("/proc/cpuinfo");
	char *name = text ? strstr(text, "\nmodel name") : NULL;
	json_t *model = NULL;

	name = name ? strstr(name, ": ") : NULL;
	if (name) {
		name[strcspn(name, "\n")] = 0;
		model = json_string(name + 2);
	} else if (text) {
		model = board_and_cores(text);
	}
	free(text);
	return model ? model : json_null();
}
