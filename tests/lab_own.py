"""gpudoctor on the lab VM itself: this Python and package copied there, and started as root."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import annotated_types
import pydantic
import pydantic_core
import pytest
import tomli_w
import typing_extensions
import typing_inspection

from tests.lab_vm import ROOT, Lab

HOME = "/opt/gpudoctor-test"
STATE = f"{HOME}/state"
PYTHON = f"{HOME}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
_LIBRARY = str(sysconfig.get_config_var("INSTSONAME"))
_NEEDED = (annotated_types, pydantic, pydantic_core, tomli_w, typing_extensions, typing_inspection)
# What is large there and not imported here.
_LEFT_OUT = (
    "site-packages test tests idlelib tkinter ensurepip lib2to3 turtledemo pydoc_data distutils "
    "unittest config-* *.opt-*.pyc multiprocessing sqlite3 curses _test* _codecs_*"
).split()


def interpreter(lab: Lab) -> None:
    """Copy the interpreter and its library. Skips where it does not run there."""
    base = Path(sys.base_prefix)
    version = Path(sysconfig.get_paths()["stdlib"]).relative_to(base)
    wanted = [f"bin/{Path(PYTHON).name}", str(version)]
    wanted += [f"lib/{_LIBRARY}"] if (base / "lib" / _LIBRARY).exists() else []
    sent(lab, base, wanted, *(f"--exclude={name}" for name in _LEFT_OUT))
    told = lab.run(
        f"ln -sf {HOME}/lib/{_LIBRARY} /usr/local/lib/; ldconfig; {PYTHON} -c 'print(1)' || :"
    )
    if told != "1":
        pytest.skip("the Python of this machine does not run on the lab's")


def installed(lab: Lab) -> None:
    """Copy the interpreter and the package. Skips where the interpreter does not run there."""
    interpreter(lab)
    sent(lab, ROOT, ["gpudoctor"], "--exclude=__pycache__", "-h")
    for module in _NEEDED:
        file = Path(str(module.__file__))
        place = file.parent if file.name == "__init__.py" else file
        sent(lab, place.parent, [place.name], "--exclude=__pycache__")


def sent(lab: Lab, folder: Path, names: list[str], *options: str) -> None:
    """Copy what lies in a folder here into HOME there; options are tar's."""
    packed = ["tar", "-C", str(folder), *options, "-czf", "-", *names]
    command = f"mkdir -p {HOME} && tar -xzf - -C {HOME}"
    line = ["ssh", "-F", str(lab.config), "lab", command]
    with subprocess.Popen(packed, stdout=subprocess.PIPE) as tar:
        subprocess.run(line, stdin=tar.stdout, check=True, timeout=300)


def gpudoctor(lab: Lab, words: str) -> str:
    """Return what a command line of gpudoctor prints there, run as root."""
    settings = f"PYTHONPATH={HOME} XDG_STATE_HOME={STATE}"
    try:
        return lab.run(f"cd / && {settings} {PYTHON} -m gpudoctor {words}", seconds=300)
    except subprocess.CalledProcessError as failed:
        pytest.fail(f"gpudoctor {words}: {failed.stdout}{failed.stderr}")


def removed(lab: Lab) -> None:
    """Take all of it away."""
    lab.run(f"rm -rf {HOME} /usr/local/lib/{_LIBRARY}; ldconfig")
