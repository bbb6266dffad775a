"""Where a device's files are below a sysfs."""

from pathlib import Path

from testbed.kernel.own_devices import below


def test_a_nic_is_on_its_bus_and_soft_roce_is_virtual(tmp_path: Path) -> None:
    known = tmp_path / "class" / "infiniband"
    known.mkdir(parents=True)
    (known / "mlx5_0").symlink_to("../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/infiniband/mlx5_0")
    (known / "a-eth1").symlink_to("../../devices/virtual/infiniband/a-eth1")
    assert below(tmp_path, "infiniband", "mlx5_0") == "devices/pci0000:00/0000:00:01.0/0000:01:00.0/infiniband/mlx5_0"
    assert below(tmp_path, "infiniband", "a-eth1") == "devices/virtual/infiniband/a-eth1"
    assert below(tmp_path, "infiniband", "not-shown") == "devices/virtual/infiniband/not-shown"
