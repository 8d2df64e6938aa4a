/* SPDX-License-Identifier: MIT */
/*
 * Background loads: each keeps the kernel busy with one kind of work, under SCHED_OTHER, until it
 * or its parent ends. It leaves no files behind.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POPULATED = 32 << 20, READ_AT_ONCE = 4 << 20, PIECE = 4096, FILES = 64, MOST_REFUSED = 100 };

struct load {
	const char *name, *summary;
	/* Runs until something fails. Names what failed, and returns its errno. */
	int (*work)(const char **failed);
};

static void end_with_parent(pid_t parent, int signal)
{
	prctl(PR_SET_PDEATHSIG, signal);
	if (getppid() != parent)
		_exit(0);
}

static int populate(const char **failed)
{
	for (;;) {
		void *memory = mmap(NULL, POPULATED, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		*failed = "mmap";
		if (memory == MAP_FAILED || munmap(memory, POPULATED))
			return errno;
	}
}

static int zero(const char **failed)
{
	char *memory = malloc(READ_AT_ONCE);
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	*failed = "/dev/zero";
	while (memory && fd >= 0 && read(fd, memory, READ_AT_ONCE) > 0)
		;
	return errno;
}

static void read_all(const char *directory, const char *name)
{
	char path[512], text[PIECE];
	int fd;

	snprintf(path, sizeof(path), "/proc/%s/%s", directory, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	/* The process may have ended, or belong to another user. */
	if (fd < 0)
		return;
	while (read(fd, text, sizeof(text)) > 0)
		;
	close(fd);
}

/* The files that ps and top read. */
static int proc(const char **failed)
{
	*failed = "/proc";
	for (;;) {
		DIR *directory = opendir("/proc");
		struct dirent *entry;

		if (!directory)
			return errno;
		while ((entry = readdir(directory)))
			if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') {
				read_all(entry->d_name, "stat");
				read_all(entry->d_name, "status");
				read_all(entry->d_name, "cmdline");
			}
		closedir(directory);
	}
}

/* Repeats a fork that failed: other processes can use up a limit for a short time. */
static int fork_and_exit(const char **failed)
{
	*failed = "fork";
	for (int refused = 0;;) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		if (pid > 0) {
			waitpid(pid, NULL, 0);
			refused = 0;
		} else if (errno != EAGAIN || refused++ == MOST_REFUSED) {
			return errno;
		} else {
			usleep(10000);
		}
	}
}

static int pipe_traffic(const char **failed)
{
	char piece[PIECE] = { 0 };
	pid_t parent = getpid(), pid;
	int ends[2];

	*failed = "pipe";
	if (pipe(ends))
		return errno;
	pid = fork();
	if (pid < 0)
		return errno;
	if (!pid) {
		end_with_parent(parent, SIGKILL);
		while (write(ends[1], piece, sizeof(piece)) > 0)
			;
		_exit(1);
	}
	close(ends[1]);
	while (read(ends[0], piece, sizeof(piece)) > 0)
		;
	return errno ? errno : EPIPE;
}

/* Nobody else uses these names, so remove_files() is safe in any directory. */
static void file_name(char *name, size_t size, int number)
{
	snprintf(name, size, "klat-load-%d", number);
}

static void remove_files(int fd, const char *directory)
{
	char name[32];

	for (int i = 0; i < FILES; i++) {
		file_name(name, sizeof(name), i);
		unlinkat(fd, name, 0);
	}
	rmdir(directory);
}

/* Start a process that removes the directory when this process, and so the pipe, has ended. It has
 * its own session, so that a signal to the load's process group does not end it. */
static int clean_up_after(int fd, const char *directory)
{
	int ends[2];
	char nothing;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return errno;
	pid = fork();
	if (pid < 0)
		return errno;
	if (!pid) {
		close(ends[1]);
		setsid();
		signal(SIGINT, SIG_IGN);
		signal(SIGTERM, SIG_IGN);
		signal(SIGHUP, SIG_IGN);
		while (read(ends[0], &nothing, 1) < 0)
			;
		remove_files(fd, directory);
		_exit(0);
	}
	/* ends[1] stays open until this process ends. */
	close(ends[0]);
	return 0;
}

static int make_files(int directory)
{
	char name[32], piece[PIECE] = { 0 };

	for (int i = 0; i < FILES; i++) {
		int fd, err = 0;

		file_name(name, sizeof(name), i);
		fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0)
			return errno;
		if (write(fd, piece, sizeof(piece)) < 0)
			err = errno;
		close(fd);
		if (err)
			return err;
	}
	for (int i = 0; i < FILES; i++) {
		file_name(name, sizeof(name), i);
		if (unlinkat(directory, name, 0))
			return errno;
	}
	return 0;
}

/* Use a descriptor: the owner of the parent can replace the directory by a link. */
static int open_own(const char *directory)
{
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat status;

	if (fd < 0)
		return -1;
	if (!fstat(fd, &status) && status.st_uid == geteuid() && (status.st_mode & 0777) == 0700)
		return fd;
	close(fd);
	errno = EPERM;
	return -1;
}

static int files(const char **failed)
{
	static char directory[256];
	const char *parent = getenv("TMPDIR");
	int fd, err;

	snprintf(directory, sizeof(directory), "%s/klat-load-XXXXXX",
		 parent && *parent ? parent : "/tmp");
	*failed = directory;
	if (!mkdtemp(directory))
		return errno;
	fd = open_own(directory);
	err = fd < 0 ? errno : clean_up_after(fd, directory);
	if (err)
		rmdir(directory);
	while (!err)
		err = make_files(fd);
	return err;
}

static const struct load loads[] = {
	{ "files", "creates, writes and unlinks files in a directory of its own", files },
	{ "fork", "forks processes that exit at once", fork_and_exit },
	{ "pipe", "sends pieces of 4 KiB through a pipe to another process", pipe_traffic },
	{ "populate", "maps 32 MiB with all pages, and unmaps them", populate },
	{ "proc", "walks /proc as ps does", proc },
	{ "zero", "reads /dev/zero, 4 MiB at once", zero },
};

#define COUNT (sizeof(loads) / sizeof(loads[0]))

static void list(FILE *out)
{
	for (size_t i = 0; i < COUNT; i++)
		fprintf(out, "%-10s%s\n", loads[i].name, loads[i].summary);
}

static void help(void)
{
	puts("Usage: load NAME [--cpu N]\n"
	     "       load --list\n\n"
	     "Keeps the kernel busy with one kind of work, under SCHED_OTHER, until it is\n"
	     "killed or its parent ends. --cpu runs it on one CPU. It leaves nothing behind.\n");
	list(stdout);
	puts("\nExit status: 1 the work failed; 2 wrong command line.");
}

static int usage(const char *format, const char *word)
{
	fputs("load: ", stderr);
	fprintf(stderr, format, word);
	fputs("; the loads are", stderr);
	for (size_t i = 0; i < COUNT; i++)
		fprintf(stderr, "%s %s", i ? "," : "", loads[i].name);
	fputc('\n', stderr);
	return 2;
}

static bool hold_to(const char *text)
{
	char *end;
	unsigned long cpu = strtoul(text, &end, 10);
	cpu_set_t set;

	if (*text < '0' || *text > '9' || *end || cpu >= CPU_SETSIZE)
		return false;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return !sched_setaffinity(0, sizeof(set), &set);
}

int main(int argc, char **argv)
{
	const struct sched_param ordinary = { 0 };
	const struct load *load = NULL;
	const char *failed = "", *cpu = NULL;
	pid_t parent = getppid();
	int err;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help")) {
			help();
			return fflush(stdout) || ferror(stdout);
		}
		if (!strcmp(argv[i], "--list")) {
			list(stdout);
			return fflush(stdout) || ferror(stdout);
		}
		if (!strcmp(argv[i], "--cpu") && i + 1 < argc) {
			cpu = argv[++i];
		} else if (!strncmp(argv[i], "--cpu=", 6)) {
			cpu = argv[i] + 6;
		} else if (load || argv[i][0] == '-') {
			return usage("unexpected argument '%s'", argv[i]);
		} else {
			for (size_t l = 0; l < COUNT; l++)
				if (!strcmp(loads[l].name, argv[i]))
					load = &loads[l];
			if (!load)
				return usage("there is no load '%s'", argv[i]);
		}
	}
	if (!load)
		return usage("%s", "name one");
	if (cpu && !hold_to(cpu)) {
		fprintf(stderr, "load: --cpu '%s': there is no such CPU for this process\n", cpu);
		return 2;
	}
	/* The parent may have another policy. */
	sched_setscheduler(0, SCHED_OTHER, &ordinary);
	end_with_parent(parent, SIGTERM);
	err = load->work(&failed);
	fprintf(stderr, "load: %s stopped: %s: %s\n", load->name, failed, strerror(err));
	return 1;
}
