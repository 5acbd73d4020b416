"""Another kernel, really booted: what the page before a reboot says of it, the story, the diff."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.cli import main
from tests.lab_vm import Lab, started
from tests.test_lab_timer import REBOOT, reached

CHECK = "kern-numa-balancing"
MENU = "Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux {}"
Typed = Callable[..., dict[str, Any]]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    """Return what runs a command line on a VM: its JSON, with the exit code it ended with."""

    def run(lab: Lab, *words: str) -> dict[str, Any]:
        capsys.readouterr()
        code = main(["--host", "lab", "--ssh-config", str(lab.config), *words, "--json"])
        printed = capsys.readouterr()
        assert printed.out, printed.err
        told: dict[str, Any] = json.loads(printed.out)
        return told | {"code": code}

    return run


def line(page: dict[str, Any], topic: str) -> dict[str, Any]:
    """Return the first line of the page about a topic."""
    found: dict[str, Any] = next(one for one in page["lines"] if one["topic"] == topic)
    return found


def release(lab: Lab) -> str:
    return lab.run("uname -r")


def other_kernel(lab: Lab) -> str:
    """Return the installed kernel that does not run."""
    (other,) = set(lab.run("ls /lib/modules").split()) - {release(lab)}
    return other


def rebooted(lab: Lab) -> None:
    old = lab.run("cat /proc/sys/kernel/random/boot_id")
    lab.run(REBOOT)
    reached(lab, f"read -r b </proc/sys/kernel/random/boot_id; [ $b != {old} ]")
    lab.settle()


def test_another_kernel_by_grub(tmp_path: Path, typed: Typed) -> None:
    """GRUB is told to boot it: the page names it, and then the story and the diff know of it."""
    with started(tmp_path, LAB_GRUB="1") as lab:
        lab.settle()
        first, second = release(lab), other_kernel(lab)
        done = typed(lab, "fix", CHECK, "--yes")
        assert done["code"] == 0
        taken = typed(lab, "snapshot", "take")["snapshot"]
        page = typed(lab, "audit", "--before-reboot")
        kernel = line(page, "kernel")
        assert (page["next_kernel"], kernel["status"]) == (first, "ready"), kernel
        where = f"gpudoctor --host lab --ssh-config {lab.config}"
        lost = [one for one in page["lines"] if one["status"] == "will-be-lost"]
        again = [f"{where} rollback {done['plan']['id']}", f"{where} fix {CHECK} --persist"]
        assert [one["commands"] for one in lost] == [again]

        lab.run(f"grub-editenv - create && grub-reboot '{MENU.format(second)}'")
        page = typed(lab, "audit", "--before-reboot")
        kernel = line(page, "kernel")
        assert (page["next_kernel"], kernel["status"]) == (second, "look"), kernel
        assert "for one boot" in kernel["sentence"]

        rebooted(lab)
        assert release(lab) == second
        story = typed(lab, "snapshot", "story")
        assert (story["code"], story["rebooted"], story["since"]) == (1, True, taken["id"])
        assert [(one["check"], one["fate"]) for one in story["told"]] == [(CHECK, "lost")]
        diff = typed(lab, "snapshot", "diff", taken["id"], "now")
        assert diff["remarks"] == ["the host was booted anew between the two"]
        (moved,) = diff["inventory"]
        assert (moved["what"], moved["before"], moved["after"]) == ("kernel", first, second)
        (setting,) = diff["settings"]
        assert (setting["what"], setting["after"]) == ("numa_balancing", "1")
        assert diff["counters"] == []

        page = typed(lab, "audit", "--before-reboot")
        kernel = line(page, "kernel")
        assert (page["kernel"], page["next_kernel"]) == (second, first)
        (command,) = kernel["commands"]
        lab.run(command)
        assert typed(lab, "audit", "--before-reboot")["next_kernel"] == second
