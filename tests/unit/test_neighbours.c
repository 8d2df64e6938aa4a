/* SPDX-License-Identifier: MIT */
/* Real-time tasks of other programs: see docs/statuses.md. */
#include "support.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct neighbour {
	pid_t pid;
	int orders, reports;
};

/* For each byte it runs for 20 ms, and answers with a byte. */
static void obey(int orders, int reports)
{
	char byte;

	while (read(orders, &byte, 1) == 1) {
		const clock_t end = clock() + 20 * CLOCKS_PER_SEC / 1000;

		while (clock() < end)
			;
		if (write(reports, &byte, 1) != 1)
			break;
	}
	_exit(0);
}

/* Above the programs of other tests, which would be neighbours of the run, too. */
enum { PRIORITY = 99 };

void set_up(void)
{
	klat_for_each_worker(worker, run)
		worker->priority = PRIORITY;
}

static bool is_made_fifo(pid_t pid)
{
	const struct sched_param priority = { PRIORITY };

	return !sched_setscheduler(pid, SCHED_FIFO, &priority);
}

static struct neighbour start(bool is_ordinary)
{
	const klat_cpu_set first = test_cpu_set("0");
	struct neighbour neighbour;
	int orders[2], reports[2];

	if (pipe(orders) || pipe(reports))
		fail();
	neighbour = (struct neighbour){ fork(), orders[1], reports[0] };
	if (!neighbour.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(orders[1]);
		if (sched_setaffinity(0, sizeof(first), (const cpu_set_t *)&first) ||
		    (!is_ordinary && !is_made_fifo(0)))
			_exit(1);
		obey(orders[0], reports[1]);
	}
	close(orders[0]);
	close(reports[1]);
	return neighbour;
}

/* Whether it ran for 20 ms. */
static bool runs(const struct neighbour *neighbour)
{
	char byte = 0;

	return write(neighbour->orders, &byte, 1) == 1 && read(neighbour->reports, &byte, 1) == 1;
}

static void end(const struct neighbour *neighbour)
{
	kill(neighbour->pid, SIGKILL);
	waitpid(neighbour->pid, NULL, 0);
	close(neighbour->orders);
	close(neighbour->reports);
}

TEST(a_neighbour_that_ends_does_not_hide_another)
{
	struct klat_neighbours *neighbours = &run->library->neighbours;
	struct neighbour first, other, later;

	signal(SIGPIPE, SIG_IGN);
	first = start(false);
	other = start(false);
	if (!runs(&first) || !runs(&first) || !runs(&other)) {
		end(&first);
		end(&other);
		skip(); /* it may have no real-time policy */
	}
	klat_neighbours_take(neighbours, run);
	end(&first);
	later = start(false);
	assert_true(runs(&other) && runs(&later));
	klat_neighbours_take(neighbours, run);
	assert_in_range(neighbours->ran_ns, 35000000, 1000000000);
	assert_true(neighbours->ran_ns <= 2 * neighbours->elapsed_ns);
	end(&other);
	end(&later);
}

TEST(a_task_that_becomes_a_neighbour_did_not_run_its_whole_life_since_then)
{
	struct klat_neighbours *neighbours = &run->library->neighbours;
	struct neighbour task;

	signal(SIGPIPE, SIG_IGN);
	task = start(true);
	assert_true(runs(&task));
	klat_neighbours_take(neighbours, run);
	usleep(50000); /* longer than its CPU time, which then does not show its age */
	if (!is_made_fifo(task.pid)) {
		end(&task);
		skip();
	}
	klat_neighbours_take(neighbours, run);
	end(&task);
	assert_int_equal(neighbours->ran_ns, 0);
	assert_int_equal(neighbours->count, 1);
}
