/* SPDX-License-Identifier: MIT */
/*
 * The files of a record. klat often runs as root, in a directory that other users can write. They
 * can put a link, a FIFO or a device where klat expects a file, and exchange files while klat runs.
 * Therefore:
 *
 * - Below the record directory no symbolic link is followed.
 * - Only a regular file without hard links is read or written.
 * - An existing file keeps its owner and mode. The caller of sudo gets only what klat made.
 */
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Digits only, and not (uid_t)-1, which means "leave as it is". */
static bool parse_id(const char *text, uint32_t *id)
{
	uint64_t value = 0;

	if (!text || !*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		value = value * 10 + (*text - '0');
		if (value >= UINT32_MAX)
			return false;
	}
	*id = value;
	return true;
}

static void give_to_caller(int descriptor)
{
	uid_t uid;
	gid_t gid;

	/* If the kernel refuses, the file still belongs to root. */
	if (geteuid() == 0 && parse_id(getenv("SUDO_UID"), &uid) &&
	    parse_id(getenv("SUDO_GID"), &gid) && fchown(descriptor, uid, gid))
		return;
}

const char *klat_file_error(int error)
{
	switch (error) {
	case ELOOP:
		return "it is, or is below, a symbolic link, which klat does not follow in a "
		       "record; remove the link";
	case EMLINK:
		return "it has hard links, and klat would change the file under each name; replace "
		       "it by a copy, or remove it";
	case ENXIO:
		return "it is not a regular file; remove it";
	case EWOULDBLOCK:
		return "another process holds a lease on it; end that process";
	default:
		return strerror(error);
	}
}

/* Open `name` in the directory. -ELOOP for a link, also with O_DIRECTORY. */
static int open_one(int directory, const char *name, int flags, mode_t mode)
{
	int fd = openat(directory, name, flags | O_NOFOLLOW | O_CLOEXEC, mode), error = errno;
	struct stat status;

	if (fd >= 0)
		return fd;
	if (error == ENOTDIR && !fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) &&
	    S_ISLNK(status.st_mode))
		return -ELOOP;
	return -error;
}

int klat_directory_enter(int directory, const char *name)
{
	return open_one(directory, name, O_PATH | O_DIRECTORY, 0);
}

static bool is_empty(int directory)
{
	int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;
	bool empty = stream;

	while (empty && (entry = readdir(stream)))
		empty = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
	if (stream)
		closedir(stream);
	else if (copy >= 0)
		close(copy);
	return empty;
}

/*
 * Whether this can be the directory that was just made in `parent`. A user who can write `parent`
 * can exchange it before klat opens it. If the directory is empty and belongs to klat's user, it is
 * safe to give away: that user could also remove it and make a new one.
 */
static bool is_new(int parent, int directory)
{
	struct stat above, status;

	return !fstat(parent, &above) && !fstat(directory, &status) &&
	       status.st_dev == above.st_dev && status.st_uid == geteuid() && is_empty(directory);
}

int klat_directory_make(int directory, const char *name)
{
	bool made = !mkdirat(directory, name, 0777);
	int fd;

	if (!made && errno != EEXIST)
		return -errno;
	fd = open_one(directory, name, O_RDONLY | O_DIRECTORY, 0);
	if (fd >= 0 && made && is_new(directory, fd))
		give_to_caller(fd);
	return fd;
}

/* Open `path` below `directory`, without following a link. `enter` opens each directory. */
static int open_below(int directory, const char *path,
		      int (*enter)(int directory, const char *name), int flags, mode_t mode)
{
	char *copy = strdup(path), *name = copy;
	int at = fcntl(directory, F_DUPFD_CLOEXEC, 0), fd = copy ? -errno : -ENOMEM;

	for (char *slash; copy && at >= 0 && (slash = strchr(name, '/')); name = slash + 1) {
		int above = at;

		*slash = 0;
		fd = at = enter(above, name);
		close(above);
	}
	if (copy && at >= 0)
		fd = open_one(at, name, flags, mode);
	if (at >= 0)
		close(at);
	free(copy);
	return fd;
}

static int check_regular(int fd)
{
	struct stat status;

	if (fstat(fd, &status))
		return -errno;
	if (!S_ISREG(status.st_mode))
		return -ENXIO;
	return status.st_nlink > 1 ? -EMLINK : 0;
}

int klat_file_open(int directory, const char *path, int flags)
{
	/* A FIFO without another end, and a file with a lease, would block. */
	const int how = (flags & ~(O_CREAT | O_TRUNC)) | O_NONBLOCK | O_NOCTTY;
	int fd = open_below(directory, path, klat_directory_enter, how, 0), err;

	if (fd == -ENOENT && flags & O_CREAT) {
		fd = open_below(directory, path, klat_directory_make, how | O_CREAT | O_EXCL, 0666);
		if (fd >= 0)
			give_to_caller(fd);
		return fd;
	}
	if (fd < 0)
		return fd;
	err = check_regular(fd);
	if (!err && flags & O_TRUNC && ftruncate(fd, 0))
		err = -errno;
	if (!err)
		return fd;
	close(fd);
	return err;
}

int klat_write_whole(int descriptor, const void *data, size_t size)
{
	const char *bytes = data;

	while (size) {
		ssize_t written = write(descriptor, bytes, size);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return -errno;
		bytes += written;
		size -= written;
	}
	return 0;
}

int klat_file_read(int directory, const char *path, size_t limit, char **text, size_t *size)
{
	int fd = klat_file_open(directory, path, O_RDONLY), err = 0;
	ssize_t got = 1;

	if (fd < 0)
		return fd;
	*size = 0;
	*text = malloc(limit + 1);
	if (!*text)
		err = -ENOMEM;
	while (!err && got && *size <= limit) {
		got = read(fd, *text + *size, limit + 1 - *size);
		if (got >= 0)
			*size += got;
		else if (errno != EINTR)
			err = -errno;
	}
	if (!err && *size > limit)
		err = -EFBIG;
	close(fd);
	if (err)
		free(*text);
	return err;
}

static uint64_t unguessable(void)
{
	uint64_t number;

	if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == sizeof(number))
		return number;
	/* Early in the boot: no other user can guess yet. */
	return klat_now_ns();
}

static void keep_owner_and_mode(int fd, const struct stat *before)
{
	/* Only root can give a file away. */
	if (fchown(fd, before->st_uid, before->st_gid) && geteuid() == 0)
		return;
	fchmod(fd, before->st_mode & 0777);
}

int klat_file_replace(int directory, const char *name, const void *data, size_t size)
{
	char draft[128];
	struct stat before;
	int fd, err;

	snprintf(draft, sizeof(draft), ".%.64s.%016llx", name, (unsigned long long)unguessable());
	fd = open_one(directory, draft, O_WRONLY | O_CREAT | O_EXCL, 0666);
	if (fd < 0)
		return fd;
	if (fstatat(directory, name, &before, AT_SYMLINK_NOFOLLOW) || !S_ISREG(before.st_mode))
		give_to_caller(fd);
	else
		keep_owner_and_mode(fd, &before);
	err = klat_write_whole(fd, data, size);
	if (!err && fsync(fd))
		err = -errno;
	close(fd);
	if (!err && renameat(directory, draft, directory, name))
		err = -errno;
	if (err)
		unlinkat(directory, draft, 0);
	return err;
}
