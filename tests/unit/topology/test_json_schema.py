"""The JSON Schema that editors use says what the loader accepts."""

import json
import re
from collections.abc import Iterator
from typing import Any

from testbed.topology import LinkDefinition, NodeDefinition, containerlab, json_schema


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every part of the schema that describes a mapping with fixed keys."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            yield schema
        for part in schema.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part)


def test_it_is_json_and_needs_nothing_from_elsewhere() -> None:
    schema = json_schema()
    text = json.dumps(schema)
    assert "$id" not in schema
    assert all(reference.startswith("#/$defs/") for reference in re.findall(r'"\$ref": "([^"]*)"', text))


def test_every_key_has_a_description_and_no_other_key_passes() -> None:
    found = list(objects(json_schema()))
    assert len(found) == 19
    for part in found:
        assert part["additionalProperties"] is False, part["title"]
        for key, value in part["properties"].items():
            assert value.get("description"), (part["title"], key)


def test_the_keys_are_those_of_the_models() -> None:
    definitions = json_schema()["$defs"]
    nodes, links = definitions["NodeDefinition"]["properties"], definitions["LinkDefinition"]["properties"]
    keys = {field.alias or name for name, field in NodeDefinition.model_fields.items()}
    assert set(nodes) == {*keys, *containerlab.NODE_NOTES}
    assert set(links) == {*LinkDefinition.model_fields, *containerlab.LINK_NOTES, "endpoint", "host-interface"}


def test_keys_that_are_passed_over_are_allowed_and_marked() -> None:
    definitions = json_schema()["$defs"]
    assert json_schema()["properties"]["prefix"]["deprecated"]
    assert definitions["ManagementDefinition"]["properties"]["bridge"]["deprecated"]
    assert definitions["NodeDefinition"]["properties"]["cpu"]["description"].startswith(
        "No effect: a container of a lab runs without it"
    )
    assert "deprecated" not in definitions["NodeDefinition"]["properties"]["image"]
    assert definitions["EndpointDefinition"]["anyOf"][1]["properties"]["vars"]["deprecated"]


def test_an_endpoint_is_brief_or_extended() -> None:
    brief, extended = json_schema()["$defs"]["EndpointDefinition"]["anyOf"]
    assert brief["type"] == "string"
    assert re.search(brief["pattern"], "leaf:e1")
    assert not re.search(brief["pattern"], "leaf")
    assert extended["required"] == ["node", "interface"]


def test_vlans_are_limited_by_their_keys() -> None:
    vlans, null = json_schema()["$defs"]["NodeDefinition"]["properties"]["vlans"]["anyOf"]
    (pattern,) = vlans["patternProperties"]
    assert null == {"type": "null"}
    assert vlans["additionalProperties"] is False
    assert [vlan for vlan in range(5000) if re.search(pattern, str(vlan))] == list(range(1, 4095))


def test_an_svi_takes_one_address_or_one_of_each_family_or_none() -> None:
    vlans, _ = json_schema()["$defs"]["NodeDefinition"]["properties"]["vlans"]["anyOf"]
    (value,) = vlans["patternProperties"].values()
    one, both, none = value["anyOf"]
    assert re.search(one["pattern"], "10.0.10.1/24")
    assert re.search(one["pattern"], "2001:db8:10::1/64")
    assert not re.search(one["pattern"], "2001:db8:10::1")
    assert (both["items"], both["maxItems"]) == (one, 2)
    assert none == {"type": "null"}
