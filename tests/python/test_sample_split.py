"""The parts of slow samples. The traces are made up, in the kernel's format."""

import pytest
from made_events import HOG, KWORKER, READER, SOFTIRQD, STOPPER, WRITER
from made_events import idle_ends, kept, parts_of, switch, waking

# The events of a sample that begins at 1000, its end, and its parts in order.
SPLITS = {
    "a round trip over two idle CPUs, along its wakeups": (
        [
            waking(1, 1010, WRITER, READER),
            switch(1, 1015, WRITER, 0),
            (0, 1030, 0, "reschedule_entry: vector=253"),
            (0, 1032, 0, "reschedule_exit: vector=253"),
            idle_ends(0, 1040),
            switch(0, 1045, 0, READER),
            waking(0, 1055, READER, WRITER),
            idle_ends(1, 1080),
            switch(1, 1090, 0, WRITER),
        ],
        1100,
        "the event itself 10, idle exit 20, interrupt reschedule 2, idle exit 8, scheduling delay 5,"
        " the event itself 10, idle exit 25, scheduling delay 10, the event itself 10",
    ),
    "what interrupts the thread is named": (
        [
            (1, 1010, WRITER, "local_timer_entry: vector=236"),
            (1, 1011, WRITER, "hrtimer_expire_entry: hrtimer=0 function=tick_nohz_handler now=5"),
            (1, 1014, WRITER, "hrtimer_expire_exit: hrtimer=0"),
            (1, 1015, WRITER, "local_timer_exit: vector=236"),
            (1, 1016, WRITER, "softirq_entry: vec=3 [action=NET_RX]"),
            (1, 1020, WRITER, "irq_handler_entry: irq=27 name=virtio1-req.0"),
            (1, 1022, WRITER, "irq_handler_exit: irq=27 ret=handled"),
            (1, 1046, WRITER, "softirq_exit: vec=3 [action=NET_RX]"),
        ],
        1060,
        "the event itself 10, interrupt local_timer 5, the event itself 1, softirq NET_RX 4,"
        " interrupt virtio1-req.0 2, softirq NET_RX 24, the event itself 14",
    ),
    "a task that preempts the thread": (
        [switch(1, 1010, WRITER, HOG, "R+"), switch(1, 1510, HOG, WRITER, "S")],
        1520,
        "the event itself 10, task a hog: 1-2 500, the event itself 10",
    ),
    "a task on the peer's CPU": (
        [
            waking(1, 1010, WRITER, READER),
            switch(1, 1015, WRITER, 0),
            switch(0, 1310, HOG, READER, "R"),
            waking(0, 1320, READER, WRITER),
            idle_ends(1, 1330),
            switch(1, 1330, 0, WRITER),
        ],
        1340,
        "the event itself 10, task a hog: 1-2 300, the event itself 10, idle exit 10, the event itself 10",
    ),
    "ksoftirqd, and the work of a kworker": (
        [
            switch(1, 1010, WRITER, SOFTIRQD, "R"),
            (1, 1020, SOFTIRQD, "softirq_entry: vec=3 [action=NET_RX]"),
            (1, 1120, SOFTIRQD, "softirq_exit: vec=3 [action=NET_RX]"),
            switch(1, 1130, SOFTIRQD, KWORKER),
            (1, 1140, KWORKER, "workqueue_execute_start: work struct 0: function vmstat_update"),
            switch(1, 1160, KWORKER, WRITER),
        ],
        1170,
        "the event itself 10, task ksoftirqd/1 10, softirq NET_RX in ksoftirqd/1 100, task ksoftirqd/1 10,"
        " task kworker/1:0 10, task kworker/1:0 (vmstat_update) 20, the event itself 10",
    ),
    "a timer's lateness begins before its interrupt": (
        [
            (1, 1100, HOG, "local_timer_entry: vector=236"),
            waking(1, 1110, HOG, WRITER),
            (1, 1120, HOG, "local_timer_exit: vector=236"),
            switch(1, 1220, HOG, WRITER, "R"),
        ],
        1230,
        "task a hog: 1-2 100, interrupt local_timer 20, task a hog: 1-2 100, the event itself 10",
    ),
    # Some kernels lose the events of an idle task.
    "the thread ran at its end stamp even if the kernel lost the switch": (
        [
            waking(1, 1010, WRITER, READER),
            switch(1, 1015, WRITER, 0),
            (1, 1050, 0, "call_function_single_entry: vector=251"),
            (1, 1055, 0, "call_function_single_exit: vector=251"),
            switch(0, 1030, 0, READER),
            waking(0, 1040, READER, WRITER),
        ],
        1070,
        "the event itself 10, idle exit 20, the event itself 10, idle exit 10,"
        " interrupt call_function_single 5, the event itself 15",
    ),
    "a thread whose switch was lost did not run before its wakeup": (
        [
            waking(1, 1010, WRITER, READER),
            switch(1, 1015, WRITER, 0),
            switch(0, 1430, HOG, READER, "R"),
            waking(0, 1440, READER, WRITER),
        ],
        1470,
        "the event itself 10, task a hog: 1-2 420, the event itself 10, the event itself 30",
    ),
    "a thread that a signal stops": (
        [
            switch(1, 1010, WRITER, HOG, "T"),
            waking(0, 1300, STOPPER, STOPPER),
            waking(0, 1310, STOPPER, WRITER),
            switch(1, 1340, HOG, WRITER),
        ],
        1350,
        "the event itself 10, stopped 300, task a hog: 1-2 30, the event itself 10",
    ),
    "a thread that a task on another CPU stops and continues": (
        [switch(1, 1010, WRITER, 0, "T"), idle_ends(1, 1330), switch(1, 1340, 0, WRITER)],
        1350,
        "the event itself 10, stopped 330, the event itself 10",
    ),
    "a frozen thread, until the task that slept meanwhile thaws it": (
        [
            switch(1, 1010, WRITER, 0),
            (0, 1298, HOG, "local_timer_entry: vector=236"),
            waking(0, 1300, HOG, STOPPER),
            (0, 1302, HOG, "local_timer_exit: vector=236"),
            switch(0, 1305, HOG, STOPPER, "R"),
            waking(0, 1310, STOPPER, WRITER),
            switch(1, 1340, 0, WRITER),
        ],
        1350,
        "the event itself 10, asleep until woken by stopper 300, idle exit 30, the event itself 10",
    ),
    "a waker that works for the thread": (
        [
            waking(1, 1005, WRITER, KWORKER),
            switch(1, 1010, WRITER, 0),
            switch(0, 1200, HOG, KWORKER, "R"),
            waking(0, 1310, KWORKER, WRITER),
            switch(1, 1340, 0, WRITER),
        ],
        1350,
        "the event itself 5, task a hog: 1-2 195, task kworker/1:0 110, idle exit 30, the event itself 10",
    ),
    "a thread that is woken before it has left its CPU": (
        [
            switch(1, 990, HOG, WRITER, "R"),
            waking(0, 1010, READER, WRITER),
            switch(1, 1020, WRITER, HOG),
            switch(1, 1500, HOG, WRITER, "R"),
        ],
        1510,
        "the event itself 10, the event itself 10, task a hog: 1-2 480, the event itself 10",
    ),
    "a CPU that idles while the thread is runnable": (
        [
            switch(1, 1010, WRITER, HOG, "R"),
            switch(1, 1100, HOG, 0),
            idle_ends(1, 1490),
            (1, 1492, 0, "call_function_single_entry: vector=251"),
            (1, 1495, 0, "call_function_single_exit: vector=251"),
            switch(1, 1500, 0, WRITER),
        ],
        1510,
        "the event itself 10, throttled 480, scheduling delay 2, interrupt call_function_single 3,"
        " scheduling delay 5, the event itself 10",
    ),
    "a CPU that idles again after the thread's wakeup": (
        [
            switch(1, 1010, WRITER, 0),
            waking(0, 1020, READER, WRITER),
            switch(0, 1030, READER, 0),
            idle_ends(1, 1040),
            (1, 1050, 0, "cpu_idle: state=1 cpu_id=1"),
            idle_ends(1, 1440),
            switch(1, 1450, 0, WRITER),
        ],
        1460,
        "the event itself 20, throttled 420, scheduling delay 10, the event itself 10",
    ),
    "an interrupt that wakes the thread while its CPU stays in its idle state": (
        [
            (1, 1100, 0, "local_timer_entry: vector=236"),
            waking(1, 1110, 0, WRITER),
            (1, 1120, 0, "local_timer_exit: vector=236"),
            idle_ends(1, 1130),
            switch(1, 1140, 0, WRITER, priority=120),
        ],
        1150,
        "idle exit 100, interrupt local_timer 20, idle exit 10, scheduling delay 10, the event itself 10",
    ),
    **{
        f"a {kind} thread that runs after the timer of a quota": (
            [
                switch(1, 1010, WRITER, HOG, "R"),
                (
                    0,
                    1500,
                    0,
                    "hrtimer_expire_entry: hrtimer=0 function=sched_cfs_period_timer now=5",
                ),
                (1, 1510, HOG, "reschedule_entry: vector=253"),
                (1, 1520, HOG, "reschedule_exit: vector=253"),
                switch(1, 1600, HOG, WRITER, "R", priority),
            ],
            1610,
            f"the event itself 10, {cause}task a hog: 1-2 500, interrupt reschedule 10,"
            " task a hog: 1-2 80, the event itself 10",
        )
        for kind, priority, cause in (("fair", 120, "CPU quota or "), ("real-time", 49, ""))
    },
}


@pytest.mark.parametrize("name", SPLITS)
def test_a_sample_is_split_into_the_parts_that_its_events_tell(name):
    events, end, parts = SPLITS[name]
    split = parts_of(kept(events, 1000, end))
    assert ", ".join(f"{part.cause} {part.ticks}" for part in split) == parts
