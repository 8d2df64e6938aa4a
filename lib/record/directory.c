/* SPDX-License-Identifier: MIT */
/*
 * Opens the record directory by the path that the user gave, and makes missing directories. Another
 * user can make a symbolic link that leads root to another place. So root follows a link only if
 * only root can have made it: the directory that holds the link belongs to root, and nobody else
 * can write that directory. For other users, the kernel's rules decide.
 */
#include "record/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_LINKS 40 /* in one path, as in the kernel */

static int open_directory(int directory, const char *name, int flags)
{
	int fd = openat(directory, name, flags | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int refuse(struct klat_run *run, int directory, const char *name, const char *target)
{
	char self[32], where[PATH_MAX] = "";

	snprintf(self, sizeof(self), "/proc/self/fd/%d", directory);
	if (readlink(self, where, sizeof(where) - 1) < 0)
		where[0] = 0;
	return klat_error(
		run, ELOOP,
		"cannot record into %s: %s/%s is a symbolic link to %s, which another user can "
		"have made; as root, name the directory itself, or remove the link",
		run->library->common.record, where, name, target);
}

/* Open the directory from which the path of the link `name` starts. `*target` is this path,
 * malloc'ed. */
static int follow(struct klat_run *run, int directory, const char *name, char **target)
{
	char text[PATH_MAX];
	ssize_t length = readlinkat(directory, name, text, sizeof(text) - 1);
	struct stat status;

	if (length < 0 || fstat(directory, &status))
		return -errno;
	text[length] = 0;
	if (status.st_uid != 0 || status.st_mode & (S_IWGRP | S_IWOTH))
		return refuse(run, directory, name, text);
	*target = strdup(text);
	if (!*target)
		return -ENOMEM;
	return open_directory(directory, text[0] == '/' ? "/" : ".", O_PATH);
}

/* Open the first component of the path `*rest`, and remove it from the path. The target of a link
 * takes the link's place in the path. */
static int step(struct klat_run *run, int directory, char **rest, int *links)
{
	char *name = *rest + strspn(*rest, "/"), *target = NULL, *whole = NULL;
	size_t length = strcspn(name, "/");
	const char *after = name + length + strspn(name + length, "/");
	int next;

	name[length] = 0;
	next = klat_directory_enter(directory, name);
	if (next == -ENOENT)
		next = klat_directory_make(directory, name);
	if (next == -ELOOP && geteuid() != 0)
		next = open_directory(directory, name, O_PATH);
	else if (next == -ELOOP && ++*links <= MOST_LINKS)
		next = follow(run, directory, name, &target);
	if (next >= 0 &&
	    asprintf(&whole, "%s%s%s", target ? target : "", target ? "/" : "", after) < 0) {
		close(next);
		next = -ENOMEM;
	}
	free(target);
	if (next >= 0) {
		free(*rest);
		*rest = whole;
	}
	return next;
}

int klat_record_directory(struct klat_run *run)
{
	const char *path = run->library->common.record;
	char *rest = strdup(path);
	int at = !rest   ? -ENOMEM
		 : *path ? open_directory(AT_FDCWD, *path == '/' ? "/" : ".", O_PATH)
			 : -ENOENT;
	int links = 0, next;

	while (at >= 0 && rest[strspn(rest, "/")]) {
		next = step(run, at, &rest, &links);
		close(at);
		at = next;
	}
	free(rest);
	if (at >= 0) {
		next = open_directory(at, ".", O_RDONLY);
		close(at);
		at = next;
	}
	if (at < 0 && klat_has_result(run))
		klat_error(run, -at, "cannot record into %s: %m", path);
	return at;
}
