/* SPDX-License-Identifier: MIT */
/* The files of a record in a directory that somebody else prepares, or changes meanwhile. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define APPEND (O_RDWR | O_APPEND | O_CREAT)
#define CALLER 1234
#define STRANGER 4321

static char path[KLAT_PATH_SIZE]; /* of the record, in `directory` */
static int record;
static void (*after_mkdir)(int parent, const char *name);

int __real_mkdirat(int parent, const char *name, mode_t mode);
int __wrap_mkdirat(int parent, const char *name, mode_t mode);

int __wrap_mkdirat(int parent, const char *name, mode_t mode)
{
	int result = __real_mkdirat(parent, name, mode);

	if (!result && after_mkdir)
		after_mkdir(parent, name);
	return result;
}

void set_up(void)
{
	unsetenv("SUDO_UID");
	unsetenv("SUDO_GID");
	snprintf(path, sizeof(path), "%s/record", directory);
	assert_int_equal(mkdir(path, 0755), 0);
	record = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(record >= 0);
}

void tear_down(void)
{
	after_mkdir = NULL;
	close(record);
}

static void write_below(const char *name, const char *text)
{
	test_write(test_path(path, name), text, strlen(text));
}

static void assert_holds(const char *name, const char *text)
{
	char *now = test_read(test_path(directory, name), NULL);

	assert_string_equal(now, text);
	free(now);
}

static void link_below(const char *target, const char *name)
{
	assert_int_equal(symlinkat(target, record, name), 0);
}

static struct stat status_of(const char *name)
{
	struct stat status;

	if (fstatat(record, name, &status, AT_SYMLINK_NOFOLLOW))
		fail_msg("%s: %s", name, strerror(errno));
	return status;
}

static void sudo_by(const char *uid, const char *gid)
{
	setenv("SUDO_UID", uid, 1);
	setenv("SUDO_GID", gid, 1);
}

static void need_root(void)
{
	if (geteuid() != 0)
		skip();
}

static void check_open(const char *name, int wanted)
{
	static const int ways[] = { O_RDONLY, O_WRONLY, APPEND, O_WRONLY | O_CREAT | O_TRUNC };

	for (size_t i = 0; i < KLAT_ARRAY_SIZE(ways); i++) {
		int fd = klat_file_open(record, name, ways[i]);

		if (fd >= 0)
			close(fd);
		if (fd != wanted)
			fail_msg("%s, flags %o: %d, not %d", name, ways[i], fd, wanted);
	}
}

TEST(no_link_is_followed_in_any_place)
{
	test_write(test_path(directory, "secret"), "secret", 6);
	link_below("../secret", "file");
	link_below("../new", "dangling");
	link_below("..", "down");
	link_below("../nowhere", "nowhere");
	assert_int_equal(mkdirat(record, "real", 0755), 0);
	link_below("../..", "real/down");
	check_open("file", -ELOOP);
	check_open("dangling", -ELOOP);
	check_open("down/secret", -ELOOP);
	check_open("real/down/secret", -ELOOP);
	check_open("down/new", -ELOOP);
	check_open("nowhere/new", -ELOOP);
	assert_holds("secret", "secret");
	assert_int_equal(access(test_path(directory, "new"), F_OK), -1);
}

TEST(a_file_with_two_names_is_refused_before_it_is_truncated)
{
	write_below("first", "text");
	assert_int_equal(linkat(record, "first", record, "second", 0), 0);
	check_open("second", -EMLINK);
	assert_holds("record/first", "text");
}

TEST(what_is_no_regular_file_is_refused_at_once)
{
	assert_int_equal(mkfifoat(record, "fifo", 0600), 0);
	assert_int_equal(mkdirat(record, "folder", 0755), 0);
	check_open("fifo", -ENXIO);
	assert_int_equal(klat_file_open(record, "folder", O_RDONLY), -ENXIO);
	assert_int_equal(klat_file_open(record, "folder", APPEND), -EISDIR);
	if (geteuid() == 0) {
		assert_int_equal(mknodat(record, "zero", S_IFCHR | 0600, makedev(1, 5)), 0);
		check_open("zero", -ENXIO);
	}
}

TEST(a_lease_does_not_block)
{
	int holder;

	write_below("leased", "text");
	holder = openat(record, "leased", O_RDONLY | O_CLOEXEC);
	signal(SIGIO, SIG_IGN);
	assert_int_equal(fcntl(holder, F_SETLEASE, F_RDLCK), 0);
	assert_int_equal(klat_file_open(record, "leased", APPEND), -EWOULDBLOCK);
	close(holder);
	signal(SIGIO, SIG_DFL);
}

TEST(missing_directories_and_files_are_made)
{
	int fd = klat_file_open(record, "a/b/new", APPEND);

	assert_true(fd >= 0);
	assert_int_equal(klat_write_whole(fd, "12", 2), 0);
	close(fd);
	fd = klat_file_open(record, "a/b/new", APPEND);
	assert_true(fd >= 0);
	assert_int_equal(klat_write_whole(fd, "34", 2), 0);
	close(fd);
	assert_holds("record/a/b/new", "1234");
	fd = klat_file_open(record, "a/b/new", O_WRONLY | O_CREAT | O_TRUNC);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(status_of("a/b/new").st_size, 0);
	assert_int_equal(klat_file_open(record, "missing", O_RDONLY), -ENOENT);
}

TEST(what_is_made_under_sudo_belongs_to_its_caller_and_what_was_there_does_not)
{
	need_root();
	assert_int_equal(mkdirat(record, "old", 0750), 0);
	assert_int_equal(mkdirat(record, "empty", 0750), 0);
	write_below("old/file", "text");
	sudo_by("1234", "1235");
	close(klat_file_open(record, "old/file", APPEND));
	close(klat_file_open(record, "old/more/file", APPEND));
	close(klat_file_open(record, "empty/file", APPEND));
	assert_int_equal(status_of("empty").st_uid, 0);
	assert_int_equal(status_of("old").st_uid, 0);
	assert_int_equal(status_of("old").st_mode, S_IFDIR | 0750);
	assert_int_equal(status_of("old/file").st_uid, 0);
	assert_int_equal(status_of("old/file").st_mode, S_IFREG | 0600);
	assert_int_equal(status_of("old/more").st_uid, 1234);
	assert_int_equal(status_of("old/more/file").st_uid, 1234);
	assert_int_equal(status_of("old/more/file").st_gid, 1235);
}

TEST(variables_of_sudo_that_are_no_ids_give_nothing_away)
{
	static const char *const wrong[] = {
		"",      "-1",    "1234x",      " 1234",      "0x4d2",
		"+1234", "12 34", "4294967295", "4294967296", "18446744073709552850"
	};

	need_root();
	for (size_t i = 0; i < 2 * KLAT_ARRAY_SIZE(wrong); i++) {
		char name[16];

		snprintf(name, sizeof(name), "%zu", i);
		sudo_by(i % 2 ? wrong[i / 2] : "1234", i % 2 ? "1234" : wrong[i / 2]);
		close(klat_file_open(record, name, APPEND));
		if (status_of(name).st_uid || status_of(name).st_gid)
			fail_msg("given away by '%s'", wrong[i / 2]);
	}
	sudo_by("4294967294", "4294967294");
	close(klat_file_open(record, "highest", APPEND));
	assert_int_equal(status_of("highest").st_uid, 4294967294);
}

static void exchange(int parent, const char *name, const char *other)
{
	after_mkdir = NULL;
	assert_int_equal(renameat(parent, name, parent, "aside"), 0);
	assert_int_equal(renameat(parent, other, parent, name), 0);
}

static void put_link(int parent, const char *name)
{
	exchange(parent, name, "link");
}

static void put_full(int parent, const char *name)
{
	exchange(parent, name, "full");
}

TEST(a_link_put_in_place_of_a_new_directory_is_not_followed)
{
	link_below("..", "link");
	after_mkdir = put_link;
	assert_int_equal(klat_file_open(record, "new/file", APPEND), -ELOOP);
	assert_null(after_mkdir);
	assert_int_equal(access(test_path(directory, "file"), F_OK), -1);
}

TEST(a_directory_put_in_place_of_a_new_one_is_not_given_away)
{
	need_root();
	sudo_by("1234", "1234");
	assert_int_equal(mkdirat(record, "full", 0700), 0);
	write_below("full/secret", "text");
	after_mkdir = put_full;
	close(klat_file_open(record, "new/file", APPEND));
	assert_int_equal(status_of("new").st_uid, 0);
	assert_int_equal(status_of("new/secret").st_uid, 0);
}

TEST(a_file_is_read_whole_or_refused_for_its_size)
{
	char *text;
	size_t size;

	write_below("ten", "0123456789");
	assert_int_equal(klat_file_read(record, "ten", 10, &text, &size), 0);
	assert_int_equal(size, 10);
	assert_memory_equal(text, "0123456789", 10);
	free(text);
	assert_int_equal(klat_file_read(record, "ten", 9, &text, &size), -EFBIG);
	assert_int_equal(klat_file_read(record, "none", 9, &text, &size), -ENOENT);
}

TEST(a_replaced_file_keeps_its_mode_and_leaves_no_draft)
{
	write_below("file", "before");
	assert_int_equal(fchmodat(record, "file", 0640, 0), 0);
	assert_int_equal(klat_file_replace(record, "file", "after", 5), 0);
	assert_holds("record/file", "after");
	assert_int_equal(status_of("file").st_mode, S_IFREG | 0640);
	assert_int_equal(unlinkat(record, "file", 0), 0);
	assert_int_equal(rmdir(path), 0);
}

TEST(a_replaced_file_keeps_its_owner)
{
	need_root();
	sudo_by("1234", "1234");
	write_below("file", "before");
	assert_int_equal(fchownat(record, "file", STRANGER, STRANGER, 0), 0);
	assert_int_equal(klat_file_replace(record, "file", "after", 5), 0);
	assert_int_equal(status_of("file").st_uid, STRANGER);
	assert_int_equal(klat_file_replace(record, "new", "after", 5), 0);
	assert_int_equal(status_of("new").st_uid, CALLER);
}

TEST(a_replacement_that_fails_leaves_no_draft)
{
	assert_int_equal(mkdirat(record, "folder", 0755), 0);
	assert_int_equal(klat_file_replace(record, "folder", "after", 5), -EISDIR);
	assert_int_equal(unlinkat(record, "folder", AT_REMOVEDIR), 0);
	assert_int_equal(rmdir(path), 0);
}

TEST(a_lock_that_is_held_is_given_up_and_its_holder_named)
{
	int holder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char text[64], wanted[64];

	assert_int_equal(klat_lock(record, 0), 0);
	assert_int_equal(klat_lock(holder, 20), -EWOULDBLOCK);
	klat_lock_holder(holder, text, sizeof(text));
	snprintf(wanted, sizeof(wanted), "process %d (test_files)", getpid());
	assert_string_equal(text, wanted);
	assert_int_equal(flock(record, LOCK_UN), 0);
	assert_int_equal(klat_lock(holder, 20), 0);
	close(holder);
	klat_lock_holder(record, text, sizeof(text));
	assert_string_equal(text, "another process");
}

static int record_into(const char *name)
{
	const char *place = test_path(directory, name);
	int fd;

	*run->outcome = (struct klat_outcome){ KLAT_OK, "" };
	run->library->common.record = place;
	fd = klat_record_directory(run);
	if (fd >= 0)
		close(fd);
	else if (run->outcome->status != KLAT_ERROR || !strstr(run->outcome->reason, place) ||
		 strstr(run->outcome->reason, "; cannot"))
		fail_msg("reason: %s", run->outcome->reason);
	return fd < 0 ? fd : 0;
}

TEST(a_path_leads_through_links_that_only_root_can_have_made)
{
	assert_int_equal(mkdirat(record, "place", 0755), 0);
	link_below("place", "link");
	link_below("link/.", "chain");
	link_below("endless", "endless");
	link_below(path, "whole");
	assert_int_equal(record_into("record/link/session"), 0);
	assert_int_equal(record_into("record/chain/session"), 0);
	assert_int_equal(record_into("record/whole/whole/place"), 0);
	assert_int_equal(record_into("record//link/../place/./session//"), 0);
	assert_int_equal(record_into("record/link"), 0);
	assert_int_equal(record_into("record/endless/session"), -ELOOP);
	assert_int_equal(record_into("record/link/new/session"), 0);
	assert_int_equal(status_of("place/new/session").st_uid, geteuid());
}

static void assert_does_not_lead(void)
{
	assert_int_equal(record_into("record/link/session"), -ELOOP);
	assert_int_equal(record_into("record/link/new"), -ELOOP);
	assert_int_equal(record_into("record/link"), -ELOOP);
	assert_int_equal(record_into("record/link/"), -ELOOP);
}

TEST(root_follows_no_link_that_another_user_can_have_made)
{
	need_root();
	sudo_by("1234", "1234");
	assert_int_equal(mkdirat(record, "place", 0755), 0);
	assert_int_equal(mkdirat(record, "place/session", 0755), 0);
	link_below("place", "link");
	assert_int_equal(fchmod(record, 01777), 0);
	assert_does_not_lead();
	assert_int_equal(fchmod(record, 0775), 0);
	assert_does_not_lead();
	assert_int_equal(fchmod(record, 0755), 0);
	assert_int_equal(fchown(record, CALLER, CALLER), 0);
	assert_does_not_lead();
	assert_int_equal(fstatat(record, "place/new", &(struct stat){ 0 }, 0), -1);
}
