/* SPDX-License-Identifier: MIT */
/*
 * How each kind of memory is made, and made to fault again.
 *
 * - A fault that allocates a page table takes longer. So the first window of each page table stays
 *   mapped: no page table is freed while pages are dropped.
 * - Neighbours with equal rights become one mapping, with one lock. So inaccessible memory lies
 *   around each area.
 */
#include "fault.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <unistd.h>

/* A read fault of a file maps as many bytes, by default, if they are in the page cache. */
#define FAULT_AROUND 65536
#define HUGE_BYTES (8 << 20)

static bool is_of_file(int kind)
{
	return kind == CACHED || kind == COPY_ON_WRITE;
}

static int set_layout(struct area *area, int kind)
{
	int per_table;

	area->kind = kind;
	area->page = sysconf(_SC_PAGESIZE);
	if (kind == HUGE) {
		const int64_t huge = klat_huge_page_bytes();

		if (huge <= 0)
			return -ENOTSUP;
		area->table = huge;
		area->tables = area->count = MAX(1, HUGE_BYTES / huge);
		area->last = huge - area->page;
	} else {
		area->table = area->page * (area->page / sizeof(void *));
		area->window = kind == CACHED ? MAX(FAULT_AROUND, area->page) : area->page;
		per_table = MIN(area->table / area->window - 1, MAX_SPOTS);
		area->count = MAX_SPOTS / per_table * per_table;
		area->tables = area->count / per_table;
		area->last = area->window - area->page;
	}
	area->size = area->tables * area->table;
	area->advice = kind == SHARED ? MADV_REMOVE : MADV_DONTNEED;
	return 0;
}

int64_t area_bytes(int kind)
{
	struct area area;

	if (set_layout(&area, kind))
		return 0;
	return kind == HUGE ? area.size : (area.count + area.tables) * area.window;
}

/* The windows of one table that are touched: all but the first one. */
static size_t touched_bytes(const struct area *area)
{
	return area->window ? area->count / area->tables * area->window : area->table;
}

/*
 * A memfd is a file of tmpfs without a directory. Its pages are the page cache, and nothing writes
 * them back or reclaims them while there is memory. A page that fallocate() made is not mapped
 * around a fault until it is written.
 */
static int make_file(const struct area *area)
{
	static char zeros[MAX_PAGE];
	const size_t used = area->window + touched_bytes(area);
	int file = memfd_create("klat-fault", MFD_CLOEXEC), err = 0;

	if (file < 0 || ftruncate(file, area->size))
		err = -errno;
	for (int table = 0; !err && table < area->tables; table++)
		for (size_t at = 0; !err && at < used; at += area->page)
			if (pwrite(file, zeros, area->page, table * area->table + at) !=
			    (ssize_t)area->page)
				err = -(errno ?: EIO);
	if (err && file >= 0)
		close(file);
	return err ?: file;
}

static int map(struct area *area)
{
	const int kind = area->kind, access = PROT_READ | (kind == CACHED ? 0 : PROT_WRITE),
		  flags = MAP_FIXED | (is_of_file(kind) ? 0 : MAP_ANONYMOUS) |
			  (kind == CACHED || kind == SHARED ? MAP_SHARED : MAP_PRIVATE);
	const size_t reserved = area->size + 2 * area->table;
	char *reservation =
		mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int file = -1;
	void *mapped;

	if (reservation == MAP_FAILED)
		return -errno;
	if (is_of_file(kind) && (file = make_file(area)) < 0)
		return file;
	area->base = (char *)roundup((uintptr_t)reservation + area->page, area->table);
	mapped = mmap(area->base, area->size, access, flags, file, 0);
	if (file >= 0)
		close(file);
	return mapped == MAP_FAILED ? -errno : 0;
}

void area_touch(const struct area *area, char *page)
{
	if (area->kind == CACHED)
		(void)*(volatile char *)page;
	else
		*(volatile char *)page = 1;
}

int area_make(struct area *area, int kind, bool small)
{
	int err = set_layout(area, kind) ?: map(area), per_table;

	if (err)
		return err;
	/* A kernel without huge pages knows neither advice. */
	if (madvise(area->base, area->size,
		    kind == HUGE && !small ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) &&
	    kind == HUGE)
		return -errno;
	per_table = area->count / area->tables;
	for (int i = 0; i < area->count; i++) {
		area->spots[i] = area->base + i / per_table * area->table +
				 (1 + i % per_table) * area->window;
		area_touch(area, area->spots[i]);
	}
	for (int table = 0; table < area->tables; table++)
		area_touch(area, area->base + table * area->table);
	return 0;
}

int area_renew(struct area *area)
{
	for (int table = 0; table < area->tables; table++)
		if (madvise(area->base + table * area->table + area->window, touched_bytes(area),
			    area->advice))
			return -errno;
	/* The write is then what it is after a fork: a fault on a page that is mapped read-only. */
	for (int i = 0; area->kind == COPY_ON_WRITE && i < area->count; i++)
		(void)*(volatile char *)area->spots[i];
	for (int i = area->count - 1; area->random && i > 0; i--) {
		const int other = klat_draw(&area->seed) % (i + 1);
		char *spot = area->spots[i];

		area->spots[i] = area->spots[other];
		area->spots[other] = spot;
	}
	return 0;
}
