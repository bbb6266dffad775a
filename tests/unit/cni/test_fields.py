"""Fields that an API server does not know are refused where they stand."""

from pathlib import Path

import pytest

from testbed.cni.objects import manifests
from testbed.errors import InputError

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, %s: {a: b}}
spec:
  %s: 3
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      %s: {a: b}
      containers: [{name: a, image: b, resources: {limits: {cpu: 1, nvidia.com/gpu: 8}}, env: [{name: A, %s: {}}]}]
"""
RIGHT = ("labels", "replicas", "nodeSelector", "valueFrom")


def read(tmp_path: Path, text: str) -> list[manifests.Object]:
    (tmp_path / "m.yaml").write_text(text)
    return manifests.load(tmp_path / "m.yaml").objects


@pytest.mark.parametrize(
    ("place", "word", "said"),
    [
        (0, "lables", "m.yaml:3:21: unknown field \"metadata.lables\"; did you mean 'labels'?"),
        (1, "replica", "m.yaml:5:3: unknown field \"spec.replica\"; did you mean 'replicas'?"),
        (2, "nodeSelektor", "unknown field \"spec.template.spec.nodeSelektor\"; did you mean 'nodeSelector'?"),
        (
            3,
            "valuefrom",
            "unknown field \"spec.template.spec.containers[0].env[0].valuefrom\"; did you mean 'valueFrom'?",
        ),
    ],
)
def test_a_misspelt_field_is_refused_at_its_place(tmp_path, place, word, said):
    words = [*RIGHT]
    assert read(tmp_path, DEPLOYMENT % tuple(words))
    words[place] = word
    with pytest.raises(InputError) as error:
        read(tmp_path, DEPLOYMENT % tuple(words))
    assert said in str(error.value)


def test_a_status_and_kinds_of_other_projects_are_not_checked(tmp_path):
    status = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a}]}\nstatus: {mine: 1}\n"
    assert read(tmp_path, status)


def test_json_is_read_with_what_yaml_does_not_know(tmp_path):
    text = (
        '{"apiVersion": "v1",\t"kind": "ConfigMap",\n\t"metadata": {"name": "a"}, "data": {"a": "\\/\\ud83d\\ude00"}}'
    )
    assert read(tmp_path, text)[0].data["data"] == {"a": "/\U0001f600"}


@pytest.mark.parametrize(
    ("version", "kind", "near"),
    [
        ("rbac.authorization.k8s.io/v1", "ClusterRole", ""),
        ("v1", "ServiceAccount", ""),
        ("apps/v1", "deployment", "; did you mean 'Deployment'?"),
        ("a/b/c", "Poed", "; did you mean 'Pod'?"),
    ],
)
def test_a_kind_of_kubernetes_is_no_misspelt_one(tmp_path, version, kind, near):
    (tmp_path / "m.yaml").write_text(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n")
    assert manifests.load(tmp_path / "m.yaml").notes == [f"{kind} is passed over: nothing in a lab reads it{near}"]


def test_a_taint_has_an_effect_that_there_is(tmp_path):
    with pytest.raises(InputError, match="effect"):
        read(
            tmp_path, "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nspec: {taints: [{key: a, effect: NoSchedul}]}\n"
        )
