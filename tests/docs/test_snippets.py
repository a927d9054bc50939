"""Every program and command of every page runs, and prints what the page says it prints."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ELSEWHERE, ROOT, Block, page_paths, read_page
from tests.docs.running import check_syntax, run_block, run_page
from tests.docs.setups import SETUPS

PAGES = page_paths()


@pytest.mark.parametrize("path", PAGES)
def test_the_page_runs(
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    long_form: bool,
) -> None:
    page = read_page(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("FLUSS_BOOTSTRAP_SERVERS", "FLUSS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with SETUPS[page.setup](tmp_path, request) as setup:
        namespace = {"__name__": "docs", **setup.names}
        run_page(page.with_words(setup.words), namespace, tmp_path, long_form)


def test_pages_left_to_other_tests_are_named_there() -> None:
    tests = [p for p in ROOT.glob("tests/**/*.py") if p.parent != Path(__file__).parent]
    texts = [p.read_text() for p in tests]
    for page in sorted(ELSEWHERE):
        if (ROOT / page).is_file() and "```python" in (ROOT / page).read_text():
            assert any(Path(page).name in text for text in texts), f"nobody runs {page}"


def _block(language: str, code: str, expected: str | None = None) -> Block:
    return Block("page.md", 1, language, code, expected=expected)


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "x = ("),
        ("yaml", "a: [1"),
        ("toml", "a = "),
        ("console", "$ echo 'x"),
        ("console", "echo x"),
        ("cobol", "STOP RUN."),
    ],
)
def test_a_block_that_is_not_what_it_says_is_found(language: str, code: str) -> None:
    with pytest.raises((SyntaxError, ValueError, AssertionError, yaml.YAMLError)):
        check_syntax(_block(language, code))


def test_other_output_than_the_page_shows_is_found(tmp_path: Path) -> None:
    run_block(_block("python", "print('a', 1)\nprint('b')", "a   …\n"), {}, tmp_path)
    with pytest.raises(AssertionError, match="but this was printed"):
        run_block(_block("python", "print('a', 1)", "a 2"), {}, tmp_path)
    with pytest.raises(AssertionError, match="but this was printed"):
        run_block(_block("python", "print('a')\nprint('b')", "b\na"), {}, tmp_path)


def test_commands_that_fail_or_do_not_run_here_are_found(tmp_path: Path) -> None:
    run_block(_block("console", "$ fluss-orchestrate --version\n…"), {}, tmp_path)
    with pytest.raises(AssertionError, match="say no-run and why"):
        run_block(_block("console", "$ kubectl get pods"), {}, tmp_path)
    with pytest.raises(AssertionError, match="ended with"):
        run_block(_block("console", "$ fluss-orchestrate no-such-command"), {}, tmp_path)
