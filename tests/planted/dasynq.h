// SPDX-License-Identifier: MIT
// As much of the interface of Dasynq as bench/eventloop/backend-dasynq.cc uses. A machine without
// Dasynq can build and try that file: watchers are armed for one event and armed again after it, a
// call brings sixteen events at most, and memory is allocated as needed. Do not
// time anything with it.
#ifndef DASYNQ_H
#define DASYNQ_H

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <sys/epoll.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace dasynq
{
enum class rearm { REARM, DISARM };
constexpr int IN_EVENTS = 1;

class event_loop_n
{
      public:
	class any_watcher
	{
	      public:
		int fd = -1, priority = 0;
		virtual rearm dispatch(event_loop_n &events) = 0;

	      protected:
		~any_watcher() = default;
	};

	template <typename Derived> class fd_watcher_impl : private any_watcher
	{
		rearm dispatch(event_loop_n &events) final
		{
			return static_cast<Derived *>(this)->fd_event(events, fd, IN_EVENTS);
		}

	      public:
		void add_watch(event_loop_n &events, int fd_, int, bool, int priority_)
		{
			fd = fd_;
			priority = priority_;
			events.control(EPOLL_CTL_ADD, this);
		}

		void deregister(event_loop_n &events)
		{
			events.control(EPOLL_CTL_DEL, this);
		}
	};

	// None of these comes to its end while a test runs.
	template <typename Derived> class timer_impl
	{
	      public:
		void add_timer(event_loop_n &)
		{
		}

		void arm_timer_rel(event_loop_n &, timespec)
		{
		}

		void deregister(event_loop_n &)
		{
		}
	};

	event_loop_n() : epoll(epoll_create1(EPOLL_CLOEXEC))
	{
		if (epoll < 0)
			throw std::system_error(errno, std::system_category());
	}

	~event_loop_n()
	{
		close(epoll);
	}

	void poll(int limit)
	{
		epoll_event events[16];
		int most = limit > 0 && limit < 16 ? limit : 16;
		int count = epoll_wait(epoll, events, most, 0);
		std::vector<any_watcher *> ready;
		// malloc() would map this much again each time.
		std::vector<char> touched(256 << 10);

		for (int i = 0; i < count; i++)
			ready.push_back(static_cast<any_watcher *>(events[i].data.ptr));
		std::stable_sort(ready.begin(), ready.end(), [](any_watcher *a, any_watcher *b) {
			return a->priority < b->priority;
		});
		for (any_watcher *each : ready)
			if (each->dispatch(*this) == rearm::REARM)
				control(EPOLL_CTL_MOD, each);
	}

      private:
	int epoll;

	void control(int what, any_watcher *watcher)
	{
		epoll_event event = {};

		event.events = EPOLLIN | EPOLLONESHOT;
		event.data.ptr = watcher;
		if (epoll_ctl(epoll, what, watcher->fd, &event))
			throw std::system_error(errno, std::system_category());
	}
};

} // namespace dasynq

#endif
