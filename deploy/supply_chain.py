"""What an installation is made of, from the lock files: a bill of materials, and known vulnerabilities.

python deploy/supply_chain.py sbom constraints-runtime.txt > dist/turntake.cdx.json
python deploy/supply_chain.py audit constraints.txt

The bill is CycloneDX 1.5, the same for the same lock file. The audit asks OSV, a public database of vulnerabilities,
about every pinned version; only names and versions leave this machine. It needs nothing but Python.
"""

import json
import os
import re
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
OSV = os.environ.get("OSV_URL", "https://api.osv.dev")
TIMEOUT_S = 60
FOUND, NOT_ASKED = 1, 2


class Pin(NamedTuple):
    """One package in a lock file."""

    name: str
    version: str
    hashes: tuple[str, ...]


def pins(lock: Path) -> Iterator[Pin]:
    for line in lock.read_text().replace("\\\n", "").splitlines():
        match = re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line)
        if match:
            yield Pin(match[1], match[2], tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", line)))


def bill_of_materials(lock: Path) -> dict[str, Any]:
    """Every pinned package with the hashes of the files that may be installed for it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    described = {"type": "application", "name": project["name"], "version": project["version"], "bom-ref": own}
    components = [_component(pin) for pin in pins(lock)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": described | {"purl": own, "licenses": [{"license": {"id": project["license"]}}]}},
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": [component["bom-ref"] for component in components]}],
    }


def _component(pin: Pin) -> dict[str, Any]:
    purl = f"pkg:pypi/{pin.name}@{pin.version}"
    hashes = [{"alg": "SHA-256", "content": content} for content in pin.hashes]
    return {
        "type": "library",
        "name": pin.name,
        "version": pin.version,
        "bom-ref": purl,
        "purl": purl,
        "hashes": hashes,
    }


def vulnerabilities(lock: Path) -> list[tuple[Pin, list[str]]]:
    """The pinned packages with known vulnerabilities, and their ids. Raises OSError if the database does not answer."""
    known = list(pins(lock))
    queries = [{"package": {"name": pin.name, "ecosystem": "PyPI"}, "version": pin.version} for pin in known]
    body = json.dumps({"queries": queries}).encode()
    request = urllib.request.Request(f"{OSV}/v1/querybatch", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        results = json.load(answer)["results"]
    found = [
        (pin, sorted(each["id"] for each in result.get("vulns", ())))
        for pin, result in zip(known, results, strict=True)
    ]
    return [(pin, ids) for pin, ids in found if ids]


def audit(lock: Path) -> int:
    try:
        found = vulnerabilities(lock)
    except OSError as error:
        sys.stderr.write(f"{OSV} could not be asked ({error}): nothing is known about {lock}.\n")
        return NOT_ASKED
    for pin, ids in found:
        sys.stdout.write(f"{pin.name} {pin.version}: {', '.join(ids)} (https://osv.dev/{ids[0]})\n")
    sys.stdout.write(f"{len(list(pins(lock)))} packages in {lock}: {len(found) or 'none'} with known vulnerabilities\n")
    return FOUND if found else 0


def main(arguments: list[str]) -> int:
    match arguments:
        case ["sbom", lock]:
            sys.stdout.write(json.dumps(bill_of_materials(Path(lock)), indent=2) + "\n")
            return 0
        case ["audit", lock]:
            return audit(Path(lock))
    sys.stderr.write(f"{__doc__}\n")
    return NOT_ASKED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
