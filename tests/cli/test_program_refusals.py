"""Command lines that one program refuses: one line, status 2, and nothing is left. test_program_usage.py has those that
every program refuses."""

import os
import re
import shlex

import pytest
from harness import ROOT, USAGE, assert_one_line, command, path_of

# By program: the words, and a part of what the program says. ` | ` separates command lines.
REFUSED = {
    "eventloop": """
        --pairs 0                            -> from 1 to
        --pairs 10 --active 11               -> must not exceed --pairs 10
        --active 20 --writes 19              -> must not be below --active 20
        --active 0                           -> from 1 to
        --writes 0                           -> from 1 to
        --backend kqueue                     -> epoll|epoll-oneshot|
    """,
    "fault": """
        --threads 0                          -> from 1 to
        --threads 1025                       -> from 1 to
        --threads 2 --cpus 0,0               -> each role spins
        --threads 2 --kind userfaultfd       -> takes no --threads
        --kind zero                          -> anonymous|file|shared
    """,
    "inherit": """
        --depth 10 --policy fifo:29          -> must be below
        --depth 31                           -> from 1 to 30
    """,
    "messages": """
        --threads 2                          -> --mode star
        --mode call --wake futex             -> --wake needs
        --mode pass-epoll --wake spin        -> --wake needs
        --wake spin --cpus 1,1               -> needs its own CPU
        --mode call --cpus 1,1               -> takes 1 CPU
        --mode star --cpus 1                 -> takes 2 CPUs
        --soak 5 --record x --mode call      -> between two threads that sleep
        --soak 5 --record x --wake spin      -> between two threads that sleep
    """,
    "network": """
        --address 10.0.0.1 | --address 10.0.0/24 | --address 10.0.0.1/ | --address 10.0.0.1/24x
        --address 10.0.0.1/31 | --address 10.0.0.1/7 | --address 10.0.0.0/24
        --address 10.0.0.255/24 | --address 127.0.0.1/8 | --address 224.0.0.1/8 | --address ::1/64
        --device '' | --device aaaaaaaaaaaaaaaa | --device a/b | --device .. | --device klat%d
        --port 65536 | --wait-for 0 | --low-priority 98 | --remote --cpus 0,0 | --cpus 0
    """,
    "network/client": """
                                             -> --to
        --to | --unknown | --to nonsense | --to 0.0.0.0 | --to ::1 | --to 10.168.77.2 --count 0
        --to 10.168.77.2 --count 12x | --to 10.168.77.2 --count +12 | --to 10.168.77.2 --count ''
        --to 10.168.77.2 --count 9999999999999999999999999999999999999999
        --to 10.168.77.2 --bytes 23 | --to 10.168.77.2 --bytes 1473 | --to 10.168.77.2 --port 0
        --to 10.168.77.2 --source here | --to 10.168.77.2 extra
    """,
    "load": """
        zero --cpu -1 | zero --cpu x | zero --cpu '' | zero --cpu 1x | zero --cpu 4096
        zero --cpu 100000
    """,
    "pipes": """
        --policy deadline:200us:1ms          -> does not measure under SCHED_DEADLINE
        --soak 5 --record x --mode one-way   -> cannot soak with these options
    """,
    "semaphore": """
        --idle 0                             -> --sleeps any
    """,
    "timer": """
        --limit 5                            -> --limit needs --soak
        --soak 5                             -> --soak needs --record
        --soak 5 --record x --iterations 5   -> --soak needs --record, and excludes
        --soak 5 --record x --mode periodic  -> needs --method nanosleep
        --soak 5 --record x --stop-above     -> --stop-above needs --limit
        --soak 5 --record x --limit 0        -> --limit takes a whole number
        --policy deadline:1000ns:1ms         -> must be at least 1024ns
        --policy deadline:2ms:1ms            -> at most PERIOD
        --policy deadline:200us:1ms --wait spin --method signal -> spins uses up its runtime
        --policy deadline:200us:1ms --period 999 -> shorter than the period
        --plant overrun                      -> needs --policy deadline
    """,
    "spawn": """
        --resident -1                        -> from 0 to
        --resident 1048577                   -> from 0 to
        --resident 0 --huge yes              -> --huge yes needs --resident
        --what system                        -> fork|vfork|clone|thread
    """,
    "tlbflush": """
        --operation membarrier --pages 2 | --operation membarrier --initiators 2
        --operation membarrier --page-table freed | --initiators 2 --responders 1
        --initiators 2 --responder-state sleeping | --initiators 2 --cpus 0,0
        --initiators 2 --cpus 0
        --cpus one                           -> each role spins
        --soak 5 --record x --iterations 5   -> --soak needs --record, and excludes
    """,
    "wakeup": """
        --slice 99                           -> at least 100
        --rate 9                             -> at least 10
        --nice 5 --policy fifo               -> under an ordinary policy only
        --slice 100 --policy rr:3            -> under an ordinary policy only
        --hogs 65
    """,
    "transport": f"""
        --peer process | --wait spin --cpus 0,0 | --rate 49 | --wait block --plant sleep
        --bytes 31 | --bytes 16777217 | --cpus 0 | --peer netns | --peer remote --transport tcp
        --listen 7718 | --listen 7718 --transport pipe
        --listen 7718 --transport tcp --peer process
        --listen 7718 --transport tcp --connect 127.0.0.1:7718
        --listen 7718 --transport tcp --rate 100 | --listen 7718 --transport tcp --cpus 0,1
        --transport tcp --connect 127.0.0.1 | --transport tcp --connect 127.0.0.1:
        --transport tcp --connect 127.0.0.1:0 | --transport tcp --connect 127.0.0.1:65536
        --transport tcp --connect 127.0.0.1:1x | --transport tcp --connect localhost:80
        --transport tcp --connect {"1" * 300}:80 | --transport tcp --drop-every 5
        --transport udp --drop-every 1 | --transport udp --reorder-every 1
        --transport unix --reorder-every 5 | --transport tcp --duplicate-every 5
        --transport udp --datagram 255 | --transport tcp --interface lo
        --transport multicast --interface aaaaaaaaaaaaaaaa
        --soak 5 --record x --wait spin -> --wait block, or with --rate
        --soak 5 --record x --listen 9999 -> --listen or --connect
    """,
}
LINES = [
    (program, *map(str.strip, f"{line} -> ".split("->")[:2]))
    for program, lines in REFUSED.items()
    for line in re.split(r"\n| \| ", lines.strip())
]


@pytest.mark.parametrize("program, line, said", LINES, ids=[f"{p} {line}" for p, line, _ in LINES])
def test_a_wrong_command_line_is_refused_and_leaves_no_file(program, line, said, tmp_path):
    path = ROOT / program if "/" in program else path_of(program)
    done = command([path, *shlex.split(line)], cwd=tmp_path)
    assert_one_line(done, path.name, USAGE)
    assert said in done.err and not os.listdir(tmp_path), str(done)
