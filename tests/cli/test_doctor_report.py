"""`klat doctor --report`: what a bug report needs is in it, and what names the machine or its users is not."""

import os
import subprocess

import harness
from made_tools import plant
import pytest

from klat.machine import privacy
from klat.running import machine_report

HOST, USER, SERIAL = "marvin42", "zaphod", "S3Z8NB0K"
MACHINE_ID = "4c4d4e4f505152535455565758595a5b"
UUID = "0a1b2c3d-1111-2222-3333-444455556666"
MAC, IPV4, IPV6 = "52:54:00:ab:cd:ef", "192.168.17.23", "fe80::5054:ff:feab:cdef"
PRIVATE = (HOST, USER, SERIAL, MACHINE_ID, UUID, MAC, IPV4, IPV6, "525400abcdef", "hunter2", "betelgeuse",
    "heartofgold", "magrathea", "5000c500", "trillian", "buildbox", "deadbeef", "slartibartfast")  # fmt: skip
CMDLINE = (
    f"BOOT_IMAGE=/boot/vmlinuz-6.12 root=/dev/mapper/{HOST}--vg-root isolcpus=2-3 resume=UUID={UUID}"
    f" ip={IPV4}::192.168.17.1:255.255.255.0:{HOST.upper()}:eth0 ifname=lan0:{MAC} ipv6={IPV6}"
    f" systemd.machine_id={MACHINE_ID} androidboot.serialno={SERIAL} rd.iscsi.password=hunter2"
    f" nfsroot=/home/{USER}/root init=/home/other/init net=enx525400abcdef"
    f" swap=/dev/disk/by-id/ata-Disk_{SERIAL} a=/dev/mapper/{HOST}_vg-a inst.ks=http://heartofgold.example/ks"
    f" rd.iscsi.initiator=iqn.2004-10.org.magrathea:01:1 b=/dev/disk/by-path/x b=wwn-0x5000c500a1b2c3d4"
    f" version=trillian@buildbox PARTUUID=deadbeef-02 -- --owner slartibartfast"
)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """The files of a machine whose names are planted."""
    files = {
        "proc/cmdline": CMDLINE,
        "etc/hostname": f"{HOST}.example.net\n",
        "sys/class/dmi/id/product_serial": "betelgeuse\n",
        "sys/devices/system/cpu/cpu0/topology/core_cpus_list": "0-1\n",
    }
    plant(tmp_path, files)
    monkeypatch.setattr(privacy.socket, "gethostname", lambda: HOST)
    for name, value in {"HOME": f"/srv/homes/{USER}", "LOGNAME": USER, "SUDO_USER": USER}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_private_words_are_left_out_and_the_rest_stays(machine):
    findings = f"{USER}'s shell, /srv/homes/{USER}/klat/results, product betelgeuse, on {HOST}:3"
    text = machine_report.report(findings, machine)
    assert not [word for word in PRIVATE if word.lower() in text.lower()]
    for kept in ("HOME/klat/results", "isolcpus=2-3", "root=/dev/mapper/HOST--vg-root", "UUID"):
        assert kept in text
    assert "cores: CPU 0-1" in text


@pytest.mark.parametrize(
    "text",
    ["00:03:15", "0000:00:1f.2", "6.12.118", "a::b()", "irq 24: 1.5", "fifo:50;reader=fifo:50", "::", "CPU 0-3:"],
)  # fmt: skip
def test_what_only_looks_like_an_address_stays(machine, text):
    assert privacy.without_names(text, machine) == text


def test_the_report_of_this_machine_has_its_record_and_no_names(tmp_path):
    namespaces = ["--uts"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--uts"]
    script = f'echo {HOST} > /proc/sys/kernel/hostname && exec ./klat doctor --report "$1"'
    file = tmp_path / "report.txt"
    done = subprocess.run(
        ["unshare", *namespaces, "sh", "-c", script, "sh", file],
        cwd=harness.ROOT,
        env={**os.environ, "HOME": f"/home/{USER}", "USER": USER, "LD_PROFILE": f"/home/{USER}/x"},
        text=True,
        capture_output=True,
    )
    assert done.returncode in (0, 1), done.stderr
    text = file.read_text()
    mac_addresses = [
        path.read_text().strip() for path in harness.Path("/sys/class/net").glob("e*/address")
    ]
    assert not [word for word in (HOST, USER, *mac_addresses) if word in text]
    for needed in ("Findings: ", "klat 0", "Linux ", '"tsc": {', '"LD_PROFILE": "HOME/x"', "L1 "):
        assert needed in text


def test_a_report_that_cannot_be_written_is_an_error(tmp_path):
    done = harness.command(
        [harness.ROOT / "klat", "doctor", "--report", tmp_path / "missing" / "report.txt"]
    )
    assert done.status == 2 and "report.txt" in done.err
