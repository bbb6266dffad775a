"""Whatever a user's file holds, it is a conflist or wrong input: never another exception.

What once was another exception is in ../corpus/conflist and tried again each time.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.cni.runtime import libcni
from testbed.cni.spec import SUPPORTED, conflist
from testbed.cni.spec.conflist import Attachment, Conflist
from testbed.cni.tool import capabilities
from testbed.errors import InputError

CORPUS = sorted((Path(__file__).parents[1] / "corpus" / "conflist").iterdir())
POD = Attachment("web", "c0ffee", "/run/netns/web", "eth0", {}, {"mac": "06:00:00:00:00:01"})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["macvlan", "rxe", "a b", "../x", "", "..", "\0", "\ud800", "x" * 300]) | VALUES
CAPABILITIES = st.dictionaries(st.sampled_from(["mac", "ips"]), st.booleans()) | VALUES
PLUGINS = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES,
        "capabilities": CAPABILITIES,
        "ipam": st.fixed_dictionaries({}, optional={"type": TYPES}) | VALUES,
        "own": VALUES,
    },
)
VERSIONS = st.sampled_from([*SUPPORTED, "0.2.0", "9.0.0", "one", ""]) | VALUES
CONFLISTS = st.fixed_dictionaries(
    {},
    optional={
        "cniVersion": VERSIONS,
        "cniVersions": st.lists(VERSIONS, max_size=3) | VALUES,
        "name": st.sampled_from(["rdma", "-x", "n" * 300]) | VALUES,
        "disableCheck": VALUES,
        "type": TYPES,
        "plugins": st.lists(PLUGINS | VALUES, max_size=3) | VALUES,
    },
)


def parsed(data: bytes) -> Conflist | None:
    """None if it was refused, in one message that a terminal can show."""
    try:
        return conflist.parse(data, "rdma.conflist")
    except InputError as error:
        refusal = error
    assert refusal.where.startswith("rdma.conflist")
    assert len(refusal.message) < 500
    return None


def holds(found: Conflist) -> None:
    """The promises of an accepted conflist: it is read back as it is, and its plugins can be looked for and called."""
    again = conflist.parse(found.data, "again")
    assert again == found
    assert found.version in SUPPORTED
    for config in found.plugins:
        for kind in conflist.called_by(config):
            assert not (Path("/nowhere") / kind).exists()
        stdin = libcni.stdin_of(found, config, POD, None)
        assert "capabilities" not in stdin
        json.loads(json.dumps(stdin, allow_nan=False))


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    if found := parsed(data):
        holds(found)


@given(CONFLISTS)
@example({"cniVersion": "1.0.0", "name": "rdma", "plugins": [{"type": "macvlan"}]})
@example({"cniVersion": "1.0.0", "name": "rdma", "type": "macvlan", "cniVersions": 1})
def test_anything_that_looks_like_a_conflist(value: dict[str, Any]) -> None:
    if found := parsed(json.dumps(value).encode()):
        holds(found)
    try:
        made = conflist.make(value)
    except InputError:
        return
    holds(made)


@given(st.text(max_size=40) | VALUES.map(json.dumps))
def test_any_capability_args(text: str) -> None:
    network = conflist.make({"cniVersion": "1.0.0", "name": "rdma", "plugins": [{"type": "macvlan"}]})
    with contextlib.suppress(InputError):
        assert capabilities(text, network) == {}


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_what_once_broke_something(file: Path) -> None:
    if found := parsed(file.read_bytes()):
        holds(found)
