/* SPDX-License-Identifier: MIT */
/* Files of /proc and /sys. */
#include "base/base.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *klat_read_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t size = 0, capacity = 1 << 16;
	char *text = fd < 0 ? NULL : malloc(capacity), *grown;
	ssize_t got;

	while (text && (got = read(fd, text + size, capacity - size - 1)) > 0) {
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
