"""Objects as users write them."""

from pathlib import Path
from typing import Any

import pytest

from testbed.cni.objects import manifests
from testbed.cni.objects.kinds import Selector
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.objects.manifests import KINDS, Object
from testbed.errors import InputError
from testbed.lab.pods import Objects

FILE = """\
# Two rails.
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: rail1
  namespace: ai
spec:
  config: '{"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1"}'
---
---
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderIPPool
metadata:
  name: rail1-v4
spec:
  subnet: 10.0.10.0/24
  ips: [10.0.10.100-10.0.10.109]
  nodeAffinity:
    matchExpressions:
      - {key: rail, operator: In, values: ["1"]}
"""


def load(tmp_path: Path, text: str) -> list[Object]:
    file = tmp_path / "objects.yaml"
    file.write_text(text)
    return manifests.load(file).objects


def test_a_file_has_several_objects(tmp_path):
    assert list(map(str, load(tmp_path, FILE))) == ["NetworkAttachmentDefinition/ai/rail1", "SpiderIPPool/rail1-v4"]


def pool(**spec: Any) -> dict[str, Any]:
    version = "spiderpool.spidernet.io/v2beta1"
    return {"apiVersion": version, "kind": "SpiderIPPool", "metadata": {"name": "p"}, "spec": spec}


@pytest.mark.parametrize(
    ("old", "new", "place", "wrong"),
    [
        (FILE, "", "", "it contains no object"),
        ("v2beta1", "v1", ":11:13", "apiVersion 'spiderpool.spidernet.io/v1' of SpiderIPPool is not supported"),
        ("  name: rail1-v4", "  name: Rail", ":14:9", "the string 'Rail' is not a name: use lower-case letters"),
        ("subnet: 10", "subnets: 10", ":16:3", "spec.subnet is missing"),
        ("  name: rail1-v4", "  name: p\n  labels: {n: 1}", ":15:11", "n must be a string, not the number 1; quote it"),
        ('"type": "macvlan", ', "", ":8:11", "spec.config"),
        ('"1.0.0", ', '"1.0.0" ', ":8:11", "spec.config:1:24: not valid JSON"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, old, new, place, wrong):
    assert old in FILE
    with pytest.raises(InputError) as said:
        load(tmp_path, FILE.replace(old, new))
    assert said.value.where == f"{tmp_path}/objects.yaml{place}"
    assert said.value.message.startswith(wrong)


def test_an_object_in_python(tmp_path):
    assert manifests.make(pool(subnet="fd00::/64", ips=["fd00::7"], ipVersion=6)).namespace == ""
    with pytest.raises(InputError, match="may only hold JSON values"):
        manifests.make(pool(subnet=tmp_path))
    definition = {"kind": "NetworkAttachmentDefinition", "apiVersion": "k8s.cni.cncf.io/v1"}
    with pytest.raises(InputError) as said:
        manifests.make(definition | {"metadata": {"name": "rail1"}, "spec": {"config": "{}"}})
    assert said.value.where == "an object: spec.config"
    assert said.value.message.startswith("spec.config:1:1: plugins is missing")


def test_selectors_are_those_of_kubernetes():
    def matches(labels: dict[str, str], **selector: Any) -> bool:
        return Selector(**selector).matches(labels)

    assert matches({})
    assert matches({"a": "1", "b": "2"}, matchLabels={"a": "1"})
    assert not matches({"a": "2"}, matchLabels={"a": "1"})
    for operator, values, on, off in (
        ("In", ["1", "2"], {"a": "1"}, {"a": "3"}),
        ("NotIn", ["1"], {}, {"a": "1"}),
        ("Exists", [], {"a": ""}, {"b": "1"}),
        ("DoesNotExist", [], {"b": "1"}, {"a": ""}),
    ):
        expression = {"key": "a", "operator": operator, "values": values}
        assert matches(on, matchExpressions=[expression])
        assert not matches(off, matchExpressions=[expression])


def test_a_cluster_keeps_what_was_applied(tmp_path):
    events = []
    cluster: Objects = Cluster(tmp_path / "cluster" / "o", tmp_path, lambda *event, **_: events.append(event[-1]))
    (tmp_path / "two.yaml").write_text(FILE)
    assert cluster.apply("two.yaml") == ["NetworkAttachmentDefinition/ai/rail1", "SpiderIPPool/rail1-v4"]
    cluster.apply(pool(subnet="10.0.30.0/24", ips=["10.0.30.1"]))
    cluster.apply(pool(subnet="10.0.30.0/24", ips=["10.0.30.7"]))
    assert cluster.get("SpiderIPPool", "p")["spec"] == {"subnet": "10.0.30.0/24", "ips": ["10.0.30.7"]}
    assert [one["metadata"]["name"] for one in cluster.list("SpiderIPPool")] == ["p", "rail1-v4"]
    with pytest.raises(InputError, match="there is no NetworkAttachmentDefinition/default/rail1"):
        cluster.get("NetworkAttachmentDefinition", "rail1")
    with pytest.raises(InputError, match="there is no SpiderIPPool/rail-v4") as said:
        cluster.get("SpiderIPPool", "rail-v4")
    assert said.value.hint == "Did you mean rail1-v4? There are: p, rail1-v4."
    with pytest.raises(InputError, match=r"overlap with IPPool p in IP ranges \[10\.0\.30\.7\]"):
        cluster.apply(pool(subnet="10.0.30.0/24", ips=["10.0.30.7"]) | {"metadata": {"name": "q"}})
    cluster.apply(pool(subnet="10.0.30.0/24", ips=["10.0.30.1"]))
    cluster.apply(pool(subnet="10.0.30.0/24", ips=["10.0.30.7"]) | {"metadata": {"name": "q"}})
    cluster.delete("SpiderIPPool", "p")
    assert events[-1] == "SpiderIPPool/p is deleted"
    with pytest.raises(InputError, match="there is no SpiderIPPool/p"):
        cluster.delete("SpiderIPPool", "p")


def test_a_file_with_a_mistake_changes_nothing(tmp_path):
    cluster = Cluster(tmp_path / "cluster" / "o", tmp_path, lambda *_, **__: None)
    (tmp_path / "two.yaml").write_text(FILE.replace("subnet", "sub"))
    with pytest.raises(InputError):
        cluster.apply("two.yaml")
    assert cluster.list("NetworkAttachmentDefinition") == []


def test_variables_templates_and_deep_schemas_of_others_are_text(tmp_path):
    """A ConfigMap with a script, an alarm with a template, the definition of a kind: kubectl takes them as they are."""
    deep = "".join(f"{'  ' * n}a:\n" for n in range(1, 60))
    text = f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: script}}
data:
  run.sh: |
    echo "${{HOME:-/root}}" $${{X}} {{{{ $labels.node }}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: x}}
spec:
{deep}
"""
    (tmp_path / "f.yaml").write_text(text)
    found = manifests.load(tmp_path / "f.yaml")
    assert found.objects[0].data["data"]["run.sh"] == 'echo "${HOME:-/root}" $${X} {{ $labels.node }}\n'
    assert found.notes == ["CustomResourceDefinition is passed over: nothing in a lab reads it"]


def test_the_public_docstring_names_the_kinds():
    assert all(kind in (Objects.__doc__ or "") for kind in KINDS)


OTHERS = """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: writer}
---
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderIPool
metadata: {name: p}
"""


def test_a_kind_that_nothing_reads_is_passed_over_with_one_remark(tmp_path):
    told = []
    cluster = Cluster(tmp_path / "cluster" / "o", tmp_path, lambda *event, **_: told.append(event[-1]))
    (tmp_path / "all.yaml").write_text(f"{OTHERS}---\n{FILE}")
    assert len(cluster.apply("all.yaml")) == 2
    assert told[-3:] == [
        "PersistentVolumeClaim is passed over: nothing in a lab reads it",
        "Role is passed over: nothing in a lab reads it",
        "SpiderIPool is passed over: nothing in a lab reads it; did you mean 'SpiderIPPool'?",
    ]
    (tmp_path / "others.yaml").write_text(OTHERS)
    assert cluster.apply("others.yaml") == []
    odd = OTHERS.replace("{name: data}", '{name: "system:node", annotations: }')
    assert load(tmp_path, odd) == [], "nothing else of them is read"


def test_a_key_without_a_value_is_absent(tmp_path):
    """As Helm charts write it, and as an API server takes it."""
    text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, annotations: }\nspec: {replicas: }\n"
    (found,) = load(tmp_path, text)
    assert found.data["metadata"] == {"name": "web"}
    assert found.spec == {}


def test_a_list_has_objects_with_places_of_their_own(tmp_path):
    text = """\
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Namespace
    metadata: {name: ai}
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web, namespace: ai}
    spec: {replicas: -1}
"""
    with pytest.raises(InputError) as said:
        load(tmp_path, text)
    assert (said.value.where, said.value.message[:13]) == (f"{tmp_path}/objects.yaml:10:22", "spec.replicas")
    assert list(map(str, load(tmp_path, text.replace("-1", "1")))) == ["Namespace/ai", "Deployment/ai/web"]
