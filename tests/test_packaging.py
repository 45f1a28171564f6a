"""The lock file works anywhere, and the wheel takes the configurations along."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
DIRECT = [Requirement(text) for text in PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]]


def test_lock_holds_only_pinned_names():
    """No host, folder, option or link: where packages come from is the reader's own configuration."""
    pin = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+( ; [^/@]+)?")
    assert [line for line in LOCK if not pin.fullmatch(line)] == []


@pytest.mark.parametrize("requirement", DIRECT, ids=lambda requirement: requirement.name)
def test_lock_satisfies_each_direct_dependency(requirement):
    pins = [pin for pin in map(Requirement, LOCK) if canonicalize_name(pin.name) == canonicalize_name(requirement.name)]
    assert pins, f"{requirement.name} is not locked: compile requirements.lock again"
    for pin in pins:
        (version,) = (specifier.version for specifier in pin.specifier)
        assert requirement.specifier.contains(version), f"{pin} does not satisfy {requirement}"


def test_wheel_ships_the_configurations():
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["codesign"]
    assert wheel["force-include"] == {"conf": "codesign/conf"}
