"""The parts of slow samples. The traces are made up, in the kernel's format."""

import pytest
from made_events import HOG, KWORKER, READER, SOFTIRQD, STOPPER, WRITER
from made_events import Event, idle_ends, kept, parts_of, switch, waking

# Each sample begins at 1000. Its name and its end, its events, and after `=` its parts in order. An event begins with
# CPU.TIME. `awake`: the CPU leaves its idle state. `A > B [STATE [PRIORITY]]`: the CPU switches from A to B.
# Some kernels lose the events of an idle task.
SPLITS = """\
a round trip over two idle CPUs, along its wakeups: 1100
1.1010 writer wakes reader; 1.1015 writer > idle; 0.1030 idle reschedule_entry: vector=253;
0.1032 idle reschedule_exit: vector=253; 0.1040 awake; 0.1045 idle > reader;
0.1055 reader wakes writer; 1.1080 awake; 1.1090 idle > writer
= the event itself 10, idle exit 20, interrupt reschedule 2, idle exit 8, scheduling delay 5, the
event itself 10, idle exit 25, scheduling delay 10, the event itself 10

what interrupts the thread is named: 1060
1.1010 writer local_timer_entry: vector=236;
1.1011 writer hrtimer_expire_entry: hrtimer=0 function=tick_nohz_handler now=5;
1.1014 writer hrtimer_expire_exit: hrtimer=0; 1.1015 writer local_timer_exit: vector=236;
1.1016 writer softirq_entry: vec=3 [action=NET_RX];
1.1020 writer irq_handler_entry: irq=27 name=virtio1-req.0;
1.1022 writer irq_handler_exit: irq=27 ret=handled;
1.1046 writer softirq_exit: vec=3 [action=NET_RX]
= the event itself 10, interrupt local_timer 5, the event itself 1, softirq NET_RX 4, interrupt
virtio1-req.0 2, softirq NET_RX 24, the event itself 14

a task that preempts the thread: 1520
1.1010 writer > hog R+; 1.1510 hog > writer
= the event itself 10, task a hog: 1-2 500, the event itself 10

a task on the peer's CPU: 1340
1.1010 writer wakes reader; 1.1015 writer > idle; 0.1310 hog > reader R; 0.1320 reader wakes writer;
1.1330 awake; 1.1330 idle > writer
= the event itself 10, task a hog: 1-2 300, the event itself 10, idle exit 10, the event itself 10

ksoftirqd, and the work of a kworker: 1170
1.1010 writer > ksoftirqd R; 1.1020 ksoftirqd softirq_entry: vec=3 [action=NET_RX];
1.1120 ksoftirqd softirq_exit: vec=3 [action=NET_RX]; 1.1130 ksoftirqd > kworker;
1.1140 kworker workqueue_execute_start: work struct 0: function vmstat_update;
1.1160 kworker > writer
= the event itself 10, task ksoftirqd/1 10, softirq NET_RX in ksoftirqd/1 100, task ksoftirqd/1 10,
task kworker/1:0 10, task kworker/1:0 (vmstat_update) 20, the event itself 10

a timer's lateness begins before its interrupt: 1230
1.1100 hog local_timer_entry: vector=236; 1.1110 hog wakes writer;
1.1120 hog local_timer_exit: vector=236; 1.1220 hog > writer R
= task a hog: 1-2 100, interrupt local_timer 20, task a hog: 1-2 100, the event itself 10

the thread ran at its end stamp even if the kernel lost the switch: 1070
1.1010 writer wakes reader; 1.1015 writer > idle;
1.1050 idle call_function_single_entry: vector=251;
1.1055 idle call_function_single_exit: vector=251; 0.1030 idle > reader; 0.1040 reader wakes writer
= the event itself 10, idle exit 20, the event itself 10, idle exit 10, interrupt
call_function_single 5, the event itself 15

a thread whose switch was lost did not run before its wakeup: 1470
1.1010 writer wakes reader; 1.1015 writer > idle; 0.1430 hog > reader R; 0.1440 reader wakes writer
= the event itself 10, task a hog: 1-2 420, the event itself 10, the event itself 30

a thread that a signal stops: 1350
1.1010 writer > hog T; 0.1300 stopper wakes stopper; 0.1310 stopper wakes writer;
1.1340 hog > writer
= the event itself 10, stopped 300, task a hog: 1-2 30, the event itself 10

a thread that a task on another CPU stops and continues: 1350
1.1010 writer > idle T; 1.1330 awake; 1.1340 idle > writer
= the event itself 10, stopped 330, the event itself 10

a frozen thread, until the task that slept meanwhile thaws it: 1350
1.1010 writer > idle; 0.1298 hog local_timer_entry: vector=236; 0.1300 hog wakes stopper;
0.1302 hog local_timer_exit: vector=236; 0.1305 hog > stopper R; 0.1310 stopper wakes writer;
1.1340 idle > writer
= the event itself 10, asleep until woken by stopper 300, idle exit 30, the event itself 10

a waker that works for the thread: 1350
1.1005 writer wakes kworker; 1.1010 writer > idle; 0.1200 hog > kworker R;
0.1310 kworker wakes writer; 1.1340 idle > writer
= the event itself 5, task a hog: 1-2 195, task kworker/1:0 110, idle exit 30, the event itself 10

a thread that is woken before it has left its CPU: 1510
1.990 hog > writer R; 0.1010 reader wakes writer; 1.1020 writer > hog; 1.1500 hog > writer R
= the event itself 10, the event itself 10, task a hog: 1-2 480, the event itself 10

a CPU that idles while the thread is runnable: 1510
1.1010 writer > hog R; 1.1100 hog > idle; 1.1490 awake;
1.1492 idle call_function_single_entry: vector=251;
1.1495 idle call_function_single_exit: vector=251; 1.1500 idle > writer
= the event itself 10, throttled 480, scheduling delay 2, interrupt call_function_single 3,
scheduling delay 5, the event itself 10

a CPU that idles again after the thread's wakeup: 1460
1.1010 writer > idle; 0.1020 reader wakes writer; 0.1030 reader > idle; 1.1040 awake;
1.1050 idle cpu_idle: state=1 cpu_id=1; 1.1440 awake; 1.1450 idle > writer
= the event itself 20, throttled 420, scheduling delay 10, the event itself 10

an interrupt that wakes the thread while its CPU stays in its idle state: 1150
1.1100 idle local_timer_entry: vector=236; 1.1110 idle wakes writer;
1.1120 idle local_timer_exit: vector=236; 1.1130 awake; 1.1140 idle > writer S 120
= idle exit 100, interrupt local_timer 20, idle exit 10, scheduling delay 10, the event itself 10

a fair thread that runs after the timer of a quota: 1610
1.1010 writer > hog R;
0.1500 idle hrtimer_expire_entry: hrtimer=0 function=sched_cfs_period_timer now=5;
1.1510 hog reschedule_entry: vector=253; 1.1520 hog reschedule_exit: vector=253;
1.1600 hog > writer R 120
= the event itself 10, CPU quota or task a hog: 1-2 500, interrupt reschedule 10, task a hog: 1-2
80, the event itself 10

a real-time thread that runs after the timer of a quota: 1610
1.1010 writer > hog R;
0.1500 idle hrtimer_expire_entry: hrtimer=0 function=sched_cfs_period_timer now=5;
1.1510 hog reschedule_entry: vector=253; 1.1520 hog reschedule_exit: vector=253;
1.1600 hog > writer R
= the event itself 10, task a hog: 1-2 500, interrupt reschedule 10, task a hog: 1-2 80, the event
itself 10
"""
TASKS = {"idle": 0, "writer": WRITER, "reader": READER, "hog": HOG, "stopper": STOPPER}
TASKS |= {"ksoftirqd": SOFTIRQD, "kworker": KWORKER}


def event(text: str) -> Event:
    place, task, verb, rest, *_ = [*text.split(None, 3), "", ""]
    cpu, time = map(int, place.split("."))
    if task == "awake":
        return idle_ends(cpu, time)
    if verb == "wakes":
        return waking(cpu, time, TASKS[task], TASKS[rest])
    if verb == ">":
        after, *how = rest.split()
        state, priority = [*how, *("S", "49")[len(how) :]]
        return switch(cpu, time, TASKS[task], TASKS[after], state, int(priority))
    return cpu, time, TASKS[task], f"{verb} {rest}".strip()


@pytest.mark.parametrize("text", SPLITS.split("\n\n"), ids=lambda text: text.partition(":")[0])
def test_a_sample_is_split_into_the_parts_that_its_events_tell(text):
    head, told = text.split("\n", 1)
    events, parts = told.split("\n= ")
    run = kept([event(e) for e in events.split(";")], 1000, int(head.rpartition(":")[2]))
    split = parts_of(run)
    assert ", ".join(f"{part.cause} {part.ticks}" for part in split) == " ".join(parts.split())
