/* SPDX-License-Identifier: MIT */
/*
 * bare fault|pipes|thread COUNT: what one of them takes in a loop without klat's library, in ns.
 */
#include "bare.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096l
#define TABLE (512 * PAGE)
/* As many as fault touches before it drops them. The first page of the table stays. */
#define PAGES 124

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static double fault(void)
{
	static volatile char *pages;
	double begin;

	if (!pages) {
		char *memory = mmap(NULL, 2 * TABLE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		pages = (char *)(((uintptr_t)memory + TABLE - 1) / TABLE * TABLE);
		madvise((char *)pages, TABLE, MADV_NOHUGEPAGE);
		*pages = 1;
	}
	begin = now_ns();
	for (int page = 1; page <= PAGES; page++)
		pages[page * PAGE] = 1;
	begin = now_ns() - begin;
	madvise((char *)pages + PAGE, PAGES * PAGE, MADV_DONTNEED);
	return begin / PAGES;
}

static int pipes[2][2];

static void *answer(void *argument)
{
	char byte;

	while (read(pipes[0][0], &byte, 1) == 1)
		if (write(pipes[1][1], &byte, 1) != 1)
			break;
	return argument;
}

/* Between the fences that klat's stamps have. */
static double round_trip(void)
{
	static double first_ns;
	static uint64_t first;
	pthread_t thread;
	uint64_t begin;
	char byte = 0;

	if (!first_ns) {
		if (pipe(pipes[0]) || pipe(pipes[1]) || pthread_create(&thread, NULL, answer, NULL))
			exit(1);
		first = bare_begin();
		first_ns = now_ns();
	}
	begin = bare_begin();
	if (write(pipes[0][1], &byte, 1) != 1 || read(pipes[1][0], &byte, 1) != 1)
		exit(1);
	begin = bare_end() - begin;
	return begin * ((now_ns() - first_ns) / (double)(bare_end() - first));
}

static void *end(void *argument)
{
	return argument;
}

static double start_and_join(void)
{
	const double begin = now_ns();
	pthread_t thread;

	if (!pthread_create(&thread, NULL, end, NULL))
		pthread_join(thread, NULL);
	return now_ns() - begin;
}

int main(int argc, char **argv)
{
	const int count = argc == 3 ? atoi(argv[2]) : 0;
	double (*once)(void) = argc < 2                     ? NULL
			       : !strcmp(argv[1], "fault")  ? fault
			       : !strcmp(argv[1], "pipes")  ? round_trip
			       : !strcmp(argv[1], "thread") ? start_and_join
							    : NULL;
	double sum = 0;

	if (!once || count < 1)
		return 2;
	for (int i = 0; i < count; i++)
		sum += once();
	printf("%.1f\n", sum / count);
	return 0;
}
