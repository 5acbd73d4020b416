"""The wheel holds exactly the tree; importing the command line stays cheap."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("gpudoctor", "checks", "fixes", "screens", "snapshots")
KEPT = {".py", ".toml", ".tcss", ".typed"}


def test_wheel_is_the_tree(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    ignore = shutil.ignore_patterns("__pycache__")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=ignore)
    build = "from setuptools.build_meta import build_wheel; print(build_wheel('out'))"
    env = os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=tree, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = (tree / "out").glob("*.whl")
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    assert names == _expected()


def _expected() -> set[str]:
    names = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            inside = path.relative_to(ROOT / folder)
            linked = folder == "gpudoctor" and inside.parts[0] in FOLDERS
            if path.is_file() and path.suffix in KEPT and not linked:
                prefix = "" if folder == "gpudoctor" else "gpudoctor/"
                names.add(f"{prefix}{path.relative_to(ROOT)}")
    return names


def test_command_line_imports_nothing_heavy() -> None:
    code = (
        "import sys, gpudoctor.cli; "
        "print(sorted({'textual','asyncssh','pydantic','rich','asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_local_audit_needs_neither_ssh_nor_textual() -> None:
    code = (
        "import sys, gpudoctor.cli_audit, gpudoctor.cli_target, gpudoctor.hosts.local; "
        "print(sorted({'textual','asyncssh','pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
