"""What an installation is made of: the bill of materials and the audit read the lock files as they are."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from harness.platforms.server import FakeAnswer, FakeRequest, Platform

ROOT = Path(__file__).parent.parent
RUNTIME = "constraints-runtime.txt"


def run(*arguments: str, osv: str = "http://127.0.0.1:1") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "deploy/supply_chain.py", *arguments]
    environ = {**os.environ, "OSV_URL": osv, "NO_PROXY": "127.0.0.1"}
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=20, check=False)


def pinned() -> list[str]:
    return re.findall(r"^([A-Za-z0-9._-]+==[^\s;]+)", (ROOT / RUNTIME).read_text(), re.MULTILINE)


def test_the_bill_names_every_pinned_package_with_its_hashes() -> None:
    """The same lock file gives the same bill, so that two of them can be compared."""
    said = run("sbom", RUNTIME)
    bill = json.loads(said.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert [f"{each['name']}=={each['version']}" for each in bill["components"]] == pinned()
    hashes = [each["content"] for component in bill["components"] for each in component["hashes"]]
    assert sorted(hashes) == sorted(re.findall(r"sha256:([0-9a-f]{64})", (ROOT / RUNTIME).read_text()))
    assert bill["metadata"]["component"]["name"] == "turntake"
    assert set(bill["dependencies"][0]["dependsOn"]) == {each["purl"] for each in bill["components"]}
    assert run("sbom", RUNTIME).stdout == said.stdout


class Osv(Platform):
    """Knows of two vulnerabilities in one package."""

    def answer(self, asked: FakeRequest) -> FakeAnswer:
        names = [query["package"]["name"] for query in asked.json["queries"]]
        known = {"starlette": {"vulns": [{"id": "PYSEC-2"}, {"id": "GHSA-1"}]}}
        return FakeAnswer(body={"results": [known.get(name, {}) for name in names]})


def test_the_audit_asks_about_every_pinned_version_and_fails_if_one_is_known() -> None:
    with Osv() as osv:
        said = run("audit", RUNTIME, osv=osv.url)
        queries = osv.calls[0].json["queries"]
    assert [f"{query['package']['name']}=={query['version']}" for query in queries] == pinned()
    assert said.returncode == 1
    assert ": GHSA-1, PYSEC-2 (https://osv.dev/GHSA-1)" in said.stdout
    assert said.stdout.endswith(f"{len(pinned())} packages in {RUNTIME}: 1 with known vulnerabilities\n")


def test_an_audit_that_could_not_ask_is_not_a_good_one() -> None:
    said = run("audit", RUNTIME)
    assert said.returncode == 2
    assert "could not be asked" in said.stderr


def test_new_releases_have_to_be_a_week_old_to_be_locked() -> None:
    """Stolen releases are mostly found within days."""
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^LOCK := .*(\\\n.*)*--exclude-newer '\$\(AGE\)'", makefile, re.MULTILINE)
    assert re.search(r"^AGE \?= 7 days$", makefile, re.MULTILINE)
