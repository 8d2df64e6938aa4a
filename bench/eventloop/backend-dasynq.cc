// SPDX-License-Identifier: MIT
// Dasynq (https://davmac.org/projects/dasynq), a C++ library of headers: make DASYNQ=DIR. It arms
// each watcher for one event and arms it again afterwards. A call returns at most 16 events.
#include "eventloop.h"

#include <dasynq.h>
#include <memory>
#include <new>
#include <system_error>

namespace
{

using dasynq::event_loop_n;
using dasynq::rearm;

timespec timeout_of(loop &of)
{
	const int64_t ns = loop_draw(&of);

	return { ns / 1000000000, ns % 1000000000 };
}

class timer : public event_loop_n::timer_impl<timer>
{
      public:
	loop *of;

	rearm timer_expiry(event_loop_n &, int)
	{
		of->tally.fired++;
		return rearm::DISARM;
	}
};

class watcher : public event_loop_n::fd_watcher_impl<watcher>
{
      public:
	pair *of;
	timer timeout;

	rearm fd_event(event_loop_n &events, int, int)
	{
		if (of->loop->has_timers)
			timeout.arm_timer_rel(events, timeout_of(*of->loop));
		loop_handle(of->loop, of);
		return rearm::REARM;
	}
};

struct dasynq_loop {
	event_loop_n events;
	std::unique_ptr<watcher[]> watchers;
};

dasynq_loop &own(loop *of)
{
	return *static_cast<dasynq_loop *>(of->own);
}

// C code cannot handle exceptions.
template <typename T> int guarded(T action)
{
	try {
		action();
		return 0;
	} catch (const std::system_error &error) {
		return -error.code().value();
	} catch (const std::bad_alloc &) {
		return -ENOMEM;
	}
}

int open_dasynq(loop *of)
{
	return guarded([of] {
		auto made = std::make_unique<dasynq_loop>();

		made->watchers.reset(new watcher[of->count]);
		of->own = made.release();
	});
}

int watch(loop *of)
{
	return guarded([of] {
		event_loop_n &events = own(of).events;

		for (int i = 0; i < of->count; i++) {
			watcher &each = own(of).watchers[i];

			each.of = &of->pairs[i];
			// The lowest number is the most urgent.
			each.add_watch(events, each.of->in, dasynq::IN_EVENTS, true,
				       of->has_priorities ? each.of->level : LEVELS / 2);
			if (!of->has_timers)
				continue;
			each.timeout.of = of;
			each.timeout.add_timer(events);
			each.timeout.arm_timer_rel(events, timeout_of(*of));
		}
	});
}

int pass(loop *of)
{
	own(of).events.poll(of->batch ? of->batch : -1);
	return 0;
}

int unwatch(loop *of)
{
	for (int i = 0; i < of->count; i++) {
		own(of).watchers[i].deregister(own(of).events);
		if (of->has_timers)
			own(of).watchers[i].timeout.deregister(own(of).events);
	}
	return 0;
}

backend made()
{
	backend it = {};

	it.open = open_dasynq;
	it.watch = watch;
	it.pass = pass;
	it.unwatch = unwatch;
	return it;
}

} // namespace

extern "C" const backend backend_dasynq = made();
