"""What a lab measures, under the names and labels of Prometheus."""

import re

from measurements import H1, LEAF, POD, entry, lab, samples, value
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from testbed.metrics.exposition import LabCollector, known


def test_rdma_counters_have_the_names_and_labels_of_spiderpool() -> None:
    measured = lab()
    measured["counters"][POD]["rdma"]["pod-a"] |= {"sent_pkts": 4, "out_of_sequence": 7}
    labels = {"node_name": "h2", "pod_namespace": "ai", "pod_name": "pod-a", "ifname": "pod-a", "net_dev_name": "eth0"}
    assert value(measured, "rdma_sent_pkts_total", **labels) == 4
    assert value(measured, "rdma_out_of_sequence_total", **labels) == 7
    assert value(measured, "rdma_sent_pkts_total", node_name="h1", pod_name="", pod_namespace="") == 0


def test_they_have_those_of_node_exporter_beside_node_pod_and_netdev() -> None:
    measured = lab()
    measured["counters"][H1]["rdma"]["h1-eth1"] |= {"sent_bytes": 4288}
    labels = {"device": "h1-eth1", "port": "1", "node": "h1", "pod": "", "netdev": "eth1"}
    assert value(measured, "node_infiniband_port_data_transmitted_bytes_total", **labels) == 4288
    name = "node_infiniband_out_of_sequence_packets_received_total"
    devices = {dict(labels)["device"] for own, labels in samples(measured) if own == name}
    assert devices == {"pod-a"}, "only what a device counts is there"


def test_interfaces_are_those_of_nodes_and_pods() -> None:
    measured = lab()
    measured["counters"][H1]["interfaces"]["eth1"]["tx_bytes"] = 99
    measured["nodes"][1]["interfaces"][0]["up"] = False
    assert value(measured, "node_network_transmit_bytes_total", node="h1", pod="", device="eth1") == 99
    assert value(measured, "node_network_up", node="h1", device="eth1") == 0
    assert value(measured, "node_network_up", node="h2", pod="pod-a", device="eth0") == 1


def test_queues_and_pauses_have_their_priority() -> None:
    measured = lab()
    measured["counters"][LEAF]["interfaces"]["e1"] |= {
        "SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES:3": 5000,
        "SAI_PORT_STAT_PFC_3_RX_PKTS": 6,
        "SAI_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US": 2_500_000,
        "queue_dropped": 8,
    }
    measured["counters"][H1]["interfaces"]["eth1"] |= {"rx_prio3_pause": 9, "rx_prio3_pause_duration": 500_000}
    port = {"node": "leaf", "netdev": "e1"}
    assert value(measured, "testbed_queue_occupancy_bytes", **port, priority="3") == 5000
    assert value(measured, "testbed_pfc_received_frames_total", **port, priority="3") == 6
    assert value(measured, "testbed_pfc_paused_seconds_total", **port, priority="3") == 2.5
    assert value(measured, "testbed_link_dropped_packets_total", **port) == 8
    assert value(measured, "rdma_rx_pause_total", node_name="h1", net_dev_name="eth1", priority="3") == 9
    assert value(measured, "testbed_pfc_paused_seconds_total", node="h1", priority="3") == 0.5


def test_a_virtual_router_is_a_master_or_not_and_no_entry_of_a_table() -> None:
    measured = lab()
    for ip, state in ("10.0.0.1", "master"), ("10.0.0.2", "backup"):
        measured["tables"][LEAF].append({**entry("vrrp", "00:00:5e:00:01:05", "", ip), "state": state, "age_s": None})
    assert value(measured, "testbed_vrrp_master", node="leaf", vlan="10", ip="10.0.0.1") == 1
    assert value(measured, "testbed_vrrp_master", node="leaf", vlan="10", ip="10.0.0.2") == 0
    assert [name for name, labels in samples(measured) if dict(labels).get("mac") == "00:00:5e:00:01:05"] == [
        "testbed_vrrp_master"
    ] * 2


def test_tables_are_entries_and_their_number() -> None:
    measured = lab()
    measured["tables"][LEAF].append({**entry("arp", "", "", "10.0.0.9"), "state": "asking", "age_s": None})
    assert value(measured, "testbed_table_entries", node="leaf", table="arp") == 3
    assert value(measured, "testbed_table_entries", node="leaf", table="nd") == 0
    labels = {"node": "leaf", "table": "arp", "vlan": "10", "ip": "10.0.0.3", "mac": "02:13", "port": "e2"}
    assert value(measured, "testbed_neighbour_info", **labels) == 1
    assert value(measured, "testbed_fdb_info", mac="02:13", port="e2") == 1
    assert value(measured, "testbed_address_info", ip="10.0.0.3", mac="02:13", node="h2", pod="pod-a") == 1
    unresolved = [labels for name, labels in samples(measured) if name == "testbed_neighbour_info" and "9" in labels]
    assert unresolved == []


def test_the_lab_itself() -> None:
    measured = lab()
    measured["missing"] = ["there are no counters of pod-b: it has gone"]
    assert value(measured, "testbed_time_seconds_total") == 1.5
    assert value(measured, "testbed_fault_active", fault="link-loss", number="2") == 1
    assert value(measured, "testbed_unread") == 1


def test_prometheus_text_has_what_was_measured() -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LabCollector(lab))
    text = generate_latest(registry).decode()
    read = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert read == samples(lab())


def test_every_family_says_what_it_is() -> None:
    for family in known():
        assert re.fullmatch(r"[A-Z].*\.", family.help), family.name
        assert family.kind == "gauge" or not family.name.endswith("_total"), "the library adds it"
