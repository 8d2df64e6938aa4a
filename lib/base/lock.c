/* SPDX-License-Identifier: MIT */
/* flock() with a limit: a user who can read a file can hold its lock for ever. */
#include "base/base.h"

#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define STEP_MS 10

int klat_lock(int file, int limit_ms)
{
	for (int waited = 0; flock(file, LOCK_EX | LOCK_NB); waited += STEP_MS) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (waited >= limit_ms)
			return -EWOULDBLOCK;
		klat_nap(STEP_MS * INT64_C(1000000));
	}
	return 0;
}

/* Lines of /proc/locks: "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF". */
static int find_holder(const struct stat *status)
{
	FILE *locks = fopen("/proc/locks", "re");
	char line[256];
	int found = 0;

	while (locks && !found && fgets(line, sizeof(line), locks)) {
		unsigned int major_number, minor_number;
		unsigned long long inode;
		int pid;

		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%llu", &pid, &major_number,
			   &minor_number, &inode) == 4 &&
		    inode == status->st_ino && major_number == major(status->st_dev) &&
		    minor_number == minor(status->st_dev))
			found = pid;
	}
	if (locks)
		fclose(locks);
	return found;
}

void klat_lock_holder(int file, char *text, size_t size)
{
	struct stat status;
	char name[32];
	int pid = fstat(file, &status) ? 0 : find_holder(&status);

	if (pid <= 0) {
		snprintf(text, size, "another process");
		return;
	}
	if (!klat_read_line(klat_path("/proc/%d/comm", pid), name, sizeof(name)))
		strcpy(name, "name unknown");
	for (char *c = name; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	snprintf(text, size, "process %d (%s)", pid, name);
}
