/* SPDX-License-Identifier: MIT */
/* Files of /proc and /sys, and the words and numbers in them. */
#include "base/base.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

const char *klat_print_path(char path[KLAT_PATH_SIZE], const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(path, KLAT_PATH_SIZE, format, arguments);
	va_end(arguments);
	return path;
}

char *klat_read_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t size = 0, capacity = 1 << 16;
	char *text = fd < 0 ? NULL : malloc(capacity), *grown;
	ssize_t got;

	while (text && (got = read(fd, text + size, capacity - size - 1))) {
		/* A part of a file can look like a whole one. */
		if (got < 0) {
			free(text);
			text = NULL;
			continue;
		}
		size += got;
		if (size + 1 < capacity)
			continue;
		grown = realloc(text, capacity *= 2);
		if (!grown)
			free(text);
		text = grown;
	}
	if (fd >= 0)
		close(fd);
	if (text)
		text[size] = 0;
	return text;
}

ssize_t klat_read_small(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return -1;
	got = read(fd, text, size - 1);
	close(fd);
	if (got >= 0)
		text[got] = 0;
	return got;
}

bool klat_read_line(const char *path, char *line, size_t size)
{
	bool found = klat_read_small(path, line, size) > 0;

	line[found ? strcspn(line, "\n") : 0] = 0;
	return found;
}

int64_t klat_next_count(const char **text)
{
	const char *digits = *text + strspn(*text, " \t:");
	int64_t count;
	char *end;

	if (!isdigit((unsigned char)*digits))
		return -1;
	errno = 0;
	count = strtoll(digits, &end, 10);
	*text = end;
	return errno ? -1 : count;
}

int64_t klat_count_after(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	if (!at)
		return -1;
	at += strlen(name);
	return klat_next_count(&at);
}

int64_t klat_count_in(const char *path, const char *name)
{
	char text[8192];

	return klat_read_small(path, text, sizeof(text)) > 0 ? klat_count_after(text, name) : -1;
}

int64_t klat_read_count(const char *path)
{
	char line[64];
	const char *at = line;
	int64_t count = klat_read_line(path, line, sizeof(line)) ? klat_next_count(&at) : -1;

	return *at ? -1 : count;
}

int64_t klat_read_stat_field(pid_t pid, int field)
{
	char text[1024], *at = NULL;

	/* The name in field 2 can contain spaces. */
	if (klat_read_small(klat_path("/proc/%d/stat", pid), text, sizeof(text)) > 0)
		at = strrchr(text, ')');
	for (int i = 2; at && i < field; i++)
		at = strchr(at + 1, ' ');
	return at ? strtoll(at, NULL, 10) : -1;
}

bool klat_has_word(const char *list, char separator, const char *word)
{
	const size_t length = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += length)
		if ((at == list || at[-1] == separator) &&
		    (at[length] == separator || strchr("\n", at[length])))
			return true;
	return false;
}

uint64_t klat_hash(uint64_t hash, const char *text)
{
	for (; text && *text; text++)
		hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
	return hash;
}

int klat_compare_values(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

bool klat_is_in_proc(const char *path)
{
	struct statfs system;

	return !statfs(path, &system) && system.f_type == PROC_SUPER_MAGIC;
}

char *klat_read_stat(void)
{
	return klat_is_in_proc("/proc/stat") ? klat_read_file("/proc/stat") : NULL;
}

bool klat_stat_line(const char *line, int *cpu, int64_t times[static KLAT_STAT_TIMES])
{
	const char *at = line + 3;
	int64_t total = 0;

	if (strncmp(line, "cpu", 3) || !isdigit((unsigned char)line[3]))
		return false;
	*cpu = klat_next_count(&at);
	for (int i = 0; i < KLAT_STAT_TIMES; i++) {
		times[i] = klat_next_count(&at);
		if (times[i] < 0)
			return false;
		total += times[i];
	}
	return total;
}

bool klat_parse_number(const char *text, int64_t minimum, int64_t maximum, int64_t *number)
{
	char *end;

	errno = 0;
	*number = strtoll(text, &end, 10);
	/* strtoll() skips white space and takes a plus sign. */
	return isdigit((unsigned char)text[text[0] == '-']) && !*end && !errno &&
	       *number >= minimum && *number <= maximum;
}
