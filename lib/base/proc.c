/* SPDX-License-Identifier: MIT */
/* Files of /proc and /sys. */
#include "base/base.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

char *klat_read_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t size = 0, capacity = 1 << 16;
	char *text = NULL;

	if (fd < 0)
		return NULL;
	for (;;) {
		char *grown = realloc(text, capacity);
		ssize_t got;

		if (!grown)
			break;
		text = grown;
		got = read(fd, text + size, capacity - size - 1);
		if (got <= 0) {
			close(fd);
			text[size] = 0;
			return text;
		}
		size += got;
		if (size + 1 == capacity)
			capacity *= 2;
	}
	close(fd);
	free(text);
	return NULL;
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
