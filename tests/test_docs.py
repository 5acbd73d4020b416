"""docs/ says what the code says."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _generated() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[str, str] = module.pages()
    return pages


def test_generated_pages_are_current() -> None:
    made = _generated()
    stale = [n for n, text in made.items() if _read(ROOT / "docs" / n) != text]
    assert not stale, f"run make docs: {stale[:5]}"
    kept = {f"checks/{path.name}" for path in (ROOT / "docs" / "checks").glob("*.md")}
    assert kept <= set(made)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_readme_names_the_two_commands() -> None:
    readme = _read(ROOT / "README.md")
    assert "make run" in readme and "make test" in readme
