"""The table of versions is made from what was seen, and its page shows it as it is."""

from __future__ import annotations

from dev import matrix

REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.slurm.test_where" name="test_a"/>
<testcase classname="tests.slurm.test_where" name="test_b">\
<failure message="no">no</failure></testcase>
<testcase classname="tests.slurm.test_sweep" name="test_c[1]"/>
<testcase classname="tests.slurm.test_sweep" name="test_c[1]">\
<error message="afterwards">no</error></testcase>
<testcase classname="tests.slurm.test_sweep" name="test_d">\
<skipped message="no">no</skipped></testcase>
</testsuite></testsuites>"""
VERSIONS = "slurm 26.05.5 3.14.8 2.14.1"


def test_a_report_is_counted_by_module() -> None:
    assert matrix.results(REPORT) == {
        "test_where": {"test_a": "passed", "test_b": "failed"},
        "test_sweep": {"test_c[1]": "failed", "test_d": "skipped"},
    }


def test_some_tests_of_a_module_are_added_and_all_of_it_replace_it() -> None:
    before = {"test_where": {"test_a_busy_profile_comes_later": "passed"}}
    for whole, tests in ((False, 3), (True, 2)):
        seen: matrix.Seen = {"26.05": {"modules": before}}
        assert not matrix.note(seen, "sid", VERSIONS, REPORT, whole=whole)
        assert len(seen["26.05"]["modules"]["test_where"]) == tests


def test_tests_that_are_gone_do_not_count() -> None:
    gone = {"test_where": {"test_gone[1]": "passed"}, "test_gone": {"test_a": "passed"}}
    seen: matrix.Seen = {"26.05": {"modules": gone}}
    matrix.note(seen, "sid", VERSIONS, REPORT, whole=False)
    assert "test_gone[1]" not in seen["26.05"]["modules"]["test_where"]
    assert "test_gone" not in seen["26.05"]["modules"]


def test_the_tables() -> None:
    seen: matrix.Seen = {}
    matrix.note(seen, "sid", VERSIONS, REPORT, whole=True)
    assert "| 26.05.5 | 3.14.8 | 2.14.1 | Debian sid | 4 | 1 | 2 | 1 |" in matrix.summary(seen)
    assert "* 26.05, test_where: `test_b`" in matrix.page(seen)


def test_the_page_shows_what_was_seen() -> None:
    assert matrix.PAGE.read_text("utf-8").endswith(matrix.HEADING + matrix.page(matrix.read()))
