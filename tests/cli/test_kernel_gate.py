"""integration/kernel-gate and the templates that call it, with stand-ins for klat and for what GitHub and GitLab have."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import ROOT, Done, command
import made_tools

REPORT = "## From base to new\n\n1 jump\n"
MARKER = "<!-- klat lab diff -->"
# Keeps the words and variables of its calls.
KLAT = f"""\
#!/bin/sh
echo "$@" >>"$KEPT/klat"
env >"$KEPT/environment"
[ "$2" = diff ] || exit 0
echo 'klat: 1 of 8 boots' >&2
[ "$STATUS" != 2 ] || {{ echo 'klat: no kernel debian:9.9' >&2; exit 2; }}
printf '{REPORT.encode("unicode_escape").decode()}'
exit "$STATUS"
"""
# Keeps its words, and the comment that one of them names. ID is the comment that is there; REFUSED ends it.
API = """\
#!/bin/sh
echo "$@" >>"$KEPT/calls"
[ ! -p /dev/stdin ] || cat >"$KEPT/input"
for word; do
	case $word in body=@* | body@*) cat "${word#body*@}" >"$KEPT/comment" ;; esac
done
[ -z "$REFUSED" ] || { echo "$REFUSED" >&2; exit 1; }
case $0:$* in
*/gh:*--paginate*) [ -z "$ID" ] || echo "$ID" ;;
*/curl:*/user*) echo '{"id": 11}' ;;
*/curl:*per_page*)
	echo '[{"id": 3, "body": "x", "author": {"id": 11}},'
	[ -z "$ID" ] || printf '{"id": %s, "body": "<!-- klat lab diff -->", "author": {"id": 11}},' "$ID"
	echo '{"id": 4, "body": "<!-- klat lab diff -->", "author": {"id": 12}}]'
	;;
esac
"""
NOTHING = "#!/bin/sh\n"
GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_REF": "refs/pull/7/merge",
    "GITHUB_REPOSITORY": "kernels/linux",
    "KLAT_COMMENT": "true",
}
GITLAB = {
    "CI_API_V4_URL": "https://gitlab.example.org/api/v4",
    "CI_MERGE_REQUEST_PROJECT_ID": "5",
    "CI_MERGE_REQUEST_IID": "7",
    "KLAT_GITLAB_TOKEN": "secret",
    "KLAT_COMMENT": "true",
}


class Job:
    """A directory of a job: HOME, a tree of klat in it, and the tools that the job finds."""

    def __init__(self, base: Path) -> None:
        self.base, self.tree, self.tools = base, base / "home/klat", base / "tools"
        (self.tree / "integration").mkdir(parents=True)
        self.tools.mkdir()
        shutil.copy(ROOT / "integration/kernel-gate", self.tree / "integration")
        made_tools.script(self.tree / "klat", KLAT)
        for tool in ("gh", "curl"):
            self.tool(tool, API)

    def tool(self, name: str, text: str) -> None:
        made_tools.script(self.tools / name, text)

    def text(self, name: str) -> str:
        path = self.base / name
        return path.read_text() if path.exists() else ""

    def run(self, *words: str | Path, status: int = 0, **settings: str) -> Done:
        environment = {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "HOME": str(self.base / "home"),
            "KEPT": str(self.base),
            "STATUS": str(status),
            "GITHUB_STEP_SUMMARY": str(self.base / "summary"),
            "GITHUB_OUTPUT": str(self.base / "output"),
            "GITHUB_ACTION_PATH": str(self.tree),
        }
        return command(words, cwd=self.base, env=environment | settings)

    def gate(self, status: int = 0, **settings: str) -> Done:
        script = self.tree / "integration/kernel-gate"
        return self.run(script, "old kernel", "new", "pipes", status=status, **settings)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.mark.parametrize(
    ("status", "verdict", "slower", "never", "kind"),
    [
        (0, "passed", 0, 0, "notice"),
        (1, "slower", 1, 0, "error"),
        (3, "inconclusive", 0, 0, "warning"),
        (5, "lost", 5, 0, "error"),
        (2, "none", 2, 2, "error"),
        (4, "none", 4, 4, "error"),
        (143, "none", 143, 143, "error"),
    ],
)
def test_the_status_is_the_verdict(job, status, verdict, slower, never, kind):
    done = job.gate(status, GITHUB_ACTIONS="true")
    assert done.status == slower and f"\n::{kind}::klat: " in done.out, str(done)
    assert job.text("output").splitlines()[:2] == [f"status={status}", f"verdict={verdict}"]
    assert job.gate(status, KLAT_FAIL_ON="never").status == never


def test_the_report_is_the_summary_and_a_file(job):
    done = job.gate(1)
    assert job.text("klat-diff.md") == job.text("summary") == REPORT and REPORT in done.out
    assert f"report={job.base}/klat-diff.md" in job.text("output").splitlines()
    boots = job.base / "home/.cache/klat/boots"
    words = f"lab diff --format markdown --output {boots} old kernel new pipes"
    assert job.text("klat").splitlines() == [words]
    assert "klat: 1 of 8 boots" in done.err


def test_without_a_report_the_summary_has_the_reason(job):
    done = job.gate(2, GITHUB_ACTIONS="true")
    assert "no verdict: klat: no kernel debian:9.9 (status 2)" in job.text("summary")
    assert done.err.count("no kernel debian:9.9") == 2  # of klat, and the last line


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        (("a", "b"), {"KLAT_FAIL_ON": "faster"}, "is 'faster'; it must be slower or never"),
        (("a",), {}, "needs two kernels"),
    ],
)
def test_bad_input_is_one_line(job, words, settings, said):
    done = job.run(job.tree / "integration/kernel-gate", *words, **settings)
    assert done.status == 2 and said in done.err and done.err.count("\n") == 1, str(done)
    assert not job.text("klat")


@pytest.mark.parametrize("number", ["", "12"])
def test_a_comment_on_github_is_written_once_and_then_changed(job, number):
    done = job.gate(1, ID=number, **GITHUB)
    last = job.text("calls").splitlines()[-1]
    if number:
        assert "--method PATCH repos/kernels/linux/issues/comments/12 " in last
    else:
        assert "--method" not in last and "repos/kernels/linux/issues/7/comments " in last
    assert job.text("comment") == f"{MARKER}\n{REPORT}" and "no comment" not in done.err


def test_a_long_report_is_a_comment_of_whole_lines(job):
    line = "▲ switch " + "x" * 91
    text = "#!/bin/sh\nyes '" + line + "' | head -n 1000\n"
    (job.tree / "klat").write_text(text)
    job.gate(0, **GITHUB)
    marker, *lines, last = job.text("comment").splitlines()
    assert set(lines[:-1]) == {line} and len(lines) > 500
    assert last == "(shortened; the whole report is klat-diff.md)"
    assert len(job.text("summary").splitlines()) == 1000


def test_a_report_that_cannot_be_written_is_no_verdict(job):
    done = job.gate(2, KLAT_REPORT="missing/report.md", **GITHUB)
    assert "cannot write the report missing/report.md" in done.err


@pytest.mark.parametrize("number", ["", "12"])
def test_a_comment_on_gitlab_is_written_once_and_then_changed(job, number):
    done = job.gate(1, ID=number, **GITLAB)
    last = job.text("calls").splitlines()[-1]
    notes = "https://gitlab.example.org/api/v4/projects/5/merge_requests/7/notes"
    assert last.endswith(f" {notes}/12" if number else f" {notes}")
    assert ("--request PUT" in last) == bool(number)
    assert "secret" not in job.text("calls") and "PRIVATE-TOKEN: secret" in job.text("input")
    assert job.text("comment") == f"{MARKER}\n{REPORT}" and "no comment" not in done.err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (GITHUB | {"REFUSED": "Resource not accessible"}, "Resource not accessible"),
        (GITHUB | {"GITHUB_REF": "refs/heads/main"}, "this is no pull request"),
        (GITLAB | {"REFUSED": "curl: (22) 403"}, "curl: (22) 403"),
        (GITLAB | {"KLAT_GITLAB_TOKEN": ""}, "KLAT_GITLAB_TOKEN is not set"),
    ],
)
def test_without_permission_to_comment_the_verdict_and_the_summary_stay(job, settings, said):
    for status in (0, 1):
        done = job.gate(status, **settings)
        assert done.status == status, str(done)
        assert f"klat: no comment: {said}; the report is in klat-diff.md\n" in done.err
    assert job.text("summary") == REPORT * 2


def test_a_cache_that_is_too_large_begins_again(job):
    boots = job.base / "home/.cache/klat/boots/new"
    boots.mkdir(parents=True)
    job.gate(CI="true")
    assert boots.exists()
    job.tool("du", "#!/bin/sh\nprintf '2049\\t%s\\n' \"$2\"\n")
    job.gate()
    assert boots.exists(), "the cache of a user"
    assert job.gate(CI="true").status == 0
    assert not boots.exists()
    assert job.text("klat").splitlines()[-2] == "lab clear"


def template(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_the_action_gives_every_input_to_the_gate(job):
    action = template("action.yml")
    inputs = {name: f"<{name}>" for name in action["inputs"]} | {"fail-on": "never"}
    steps = [step for step in action["runs"]["steps"] if "run" in step]
    # An input in a script would be executed.
    assert not any("${{" in step["run"] for step in steps)
    values = {f"${{{{ inputs.{name} }}}}": value for name, value in inputs.items()}
    job.tool("sudo", '#!/bin/sh\nexec "$@"\n')
    for tool in ("make", "apt-get"):
        job.tool(tool, NOTHING)
    for step in steps:
        given = {name: values[value] for name, value in step.get("env", {}).items()}
        script = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"])
        done = job.run(*script, status=1, **given)
        assert done.status == 0, str(done)
    assert job.text("klat").splitlines()[-1].endswith("<base> <new> <words>")
    variables = job.text("environment").splitlines()
    assert "KLAT_DEBIAN_MIRROR=<mirror>" in variables and "GH_TOKEN=<token>" in variables
    assert "KLAT_COMMENT=<comment>" in variables
    outputs = {line.partition("=")[0] for line in job.text("output").splitlines()}
    assert outputs == set(action["outputs"])


@pytest.mark.parametrize(
    ("machine", "qemu"), [("x86_64", "qemu-system-x86"), ("aarch64", "qemu-system-arm")]
)
def test_both_templates_install_the_qemu_of_their_machine(job, machine, qemu):
    job.tool("uname", f"#!/bin/sh\necho {machine}\n")
    job.tool("sudo", '#!/bin/sh\nexec "$@"\n')
    job.tool("apt-get", '#!/bin/sh\necho "$@" >>"$KEPT/installed"\n')
    for tool in ("make", "git"):
        job.tool(tool, NOTHING)
    action = template("action.yml")["runs"]["steps"][0]["run"]
    gitlab = "\n".join(template("integration/gitlab.yml")["klat"]["before_script"])
    for number, script in enumerate((action, gitlab), 1):
        done = job.run("bash", "-ec", script)
        assert done.status == 0, str(done)
        assert job.text("installed").split().count(qemu) == number


def test_the_gitlab_job_keeps_its_cache_in_a_directory_that_is_its_own(job):
    """GitLab makes the project's directory, and what it restores into it, writable for everyone."""
    gitlab = template("integration/gitlab.yml")["klat"]
    for tool in ("make", "apt-get", "git"):
        job.tool(tool, NOTHING)
    cache = job.base / "home/.cache/klat"
    for boot in ("one", "two"):
        variables = gitlab["variables"] | {"KLAT_BASE": "old", "KLAT_WORDS": "pipes cv"}
        done = job.run(
            "bash", "-ec", "\n".join(gitlab["before_script"] + gitlab["script"]), **variables
        )
        assert done.status == 0, str(done)
        assert job.text("klat").splitlines()[-1].endswith("/boots old  pipes cv")
        (cache / "boots").mkdir(parents=True, exist_ok=True)
        (cache / "boots" / boot).touch()
        after = "umask 0\n" + "\n".join(gitlab["after_script"])
        assert job.run("bash", "-ec", after).status == 0
        assert (job.base / ".klat/boots" / boot).exists()
        (job.base / ".klat/boots").chmod(0o777)
        shutil.rmtree(cache)
    job.run("bash", "-ec", "\n".join(gitlab["before_script"]), **variables)
    assert {path.name for path in (cache / "boots").iterdir()} == {"one", "two"}
    assert cache.joinpath("boots").stat().st_mode & 0o022 == 0
    assert {".klat"} == set(gitlab["cache"]["paths"])
