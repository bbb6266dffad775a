"""A MAC that moves between ports too often has ports disabled (SONiC's MAC move guard)."""

from simulated_switch import A, B, Switch, switch

GUARD = {"mac_moves": 4, "mac_move_window": 5, "mac_move_recovery": 600, "mac_move_check": 30}


def flap(leaf: Switch, mac: str, *ports: str, vlan: int = 10) -> None:
    """The first port is where the MAC is learned, each other one is a move."""
    for port in ports:
        leaf.fdb(mac, port, vlan=vlan)


def test_without_a_guard_a_mac_may_move_as_it_likes() -> None:
    leaf = switch("sonic")

    flap(leaf, A, *["e1", "e2"] * 1000)

    assert (leaf.disabled, leaf.plane.profile.mac_moves) == (set(), None)


def test_the_defaults_of_sonic() -> None:
    leaf = switch("sonic-mac-move-guard")

    flap(leaf, A, *["e1", "e2"] * 500)
    assert leaf.disabled == set()
    flap(leaf, A, "e1")

    assert leaf.disabled == {"e2"}


def test_too_many_moves_disable_all_ports_but_the_first_by_name() -> None:
    leaf = switch("sonic", **GUARD)

    flap(leaf, A, "e3", "e2", "e1", "e3")
    assert leaf.disabled == set()
    flap(leaf, A, "e2")

    assert leaf.disabled == {"e2", "e3"}
    assert leaf.last("port.disabled") == {"switch": "leaf", "vlan": 10, "mac": A, "port": "e3", "moves": 4}


def test_moves_count_within_the_window_only() -> None:
    leaf = switch("sonic", **GUARD)

    for second in range(10):
        leaf.wait_until(2 * second)
        flap(leaf, A, f"e{second % 2}")

    assert leaf.disabled == set()


def test_moves_are_counted_by_mac_and_vlan() -> None:
    leaf = switch("sonic", **GUARD)

    for vlan in (10, 20):
        flap(leaf, A, "e1", "e2", "e1", "e2", vlan=vlan)
    flap(leaf, B, "e1", "e2", "e1", "e2")

    assert leaf.disabled == set()


def test_ports_come_up_at_the_first_look_after_their_time() -> None:
    leaf = switch("sonic", **GUARD)
    leaf.wait_until(4)
    flap(leaf, A, "e1", "e2", "e1", "e2", "e1")

    leaf.wait_until(629)
    assert leaf.disabled == {"e2"}
    leaf.wait_until(630)

    assert leaf.disabled == set()
    assert leaf.last("port.enabled")["port"] == "e2"


def test_a_mac_that_moves_on_is_held_longer() -> None:
    leaf = switch("sonic", **GUARD)
    flap(leaf, A, "e1", "e2", "e1", "e2", "e1")
    leaf.wait_until(4)
    flap(leaf, A, "e3")

    assert leaf.disabled == {"e2", "e3"}
    leaf.wait_until(629)
    assert leaf.disabled == {"e2", "e3"}
    leaf.wait_until(630)
    assert leaf.disabled == set()


def test_after_its_time_a_mac_starts_anew() -> None:
    leaf = switch("sonic", **GUARD)
    flap(leaf, A, "e1", "e2", "e1", "e2", "e1")
    leaf.wait_until(600)

    flap(leaf, A, "e2", "e1", "e2")
    assert leaf.disabled == set()
    flap(leaf, A, "e1")

    assert leaf.disabled == {"e2"}


def test_a_port_that_is_down_for_another_mac_is_not_the_one_that_stays_up() -> None:
    leaf = switch("sonic", **GUARD)
    flap(leaf, A, "e1", "e2", "e1", "e2", "e1")
    leaf.wait_until(60)
    flap(leaf, B, "e2", "e3", "e2", "e3", "e2")
    assert leaf.disabled == {"e2"}

    leaf.wait_until(600)
    assert leaf.disabled == {"e2"}
    leaf.wait_until(660)

    assert leaf.disabled == set()
    assert leaf.kinds("port.") == ["port.disabled", "port.enabled"]


def test_a_guard_that_is_switched_off_lets_go_of_its_ports() -> None:
    leaf = switch("sonic", **GUARD)
    flap(leaf, A, "e1", "e2", "e1", "e2", "e1")

    leaf.set(mac_moves=None)

    assert leaf.disabled == set()


def test_a_shorter_time_holds_for_ports_that_are_down_already() -> None:
    leaf = switch("sonic", **GUARD)
    flap(leaf, A, "e1", "e2", "e1", "e2", "e1")

    leaf.set(mac_move_recovery=60)
    leaf.wait_until(60)

    assert leaf.disabled == set()


def test_a_move_as_old_as_the_window_still_counts() -> None:
    leaf = switch("sonic", **GUARD)
    flap(leaf, A, "e1", "e2", "e1", "e2")

    leaf.wait_until(5)
    flap(leaf, A, "e1")

    assert leaf.disabled == {"e2"}


def test_a_move_older_than_the_window_does_not() -> None:
    leaf = switch("sonic", **GUARD)
    flap(leaf, A, "e1", "e2", "e1", "e2")

    leaf.wait_until(5.000001)
    flap(leaf, A, "e1")

    assert leaf.disabled == set()


def test_a_port_whose_last_move_is_out_of_the_window_stays_up() -> None:
    leaf = switch("sonic", **GUARD)
    flap(leaf, A, "e4", "e3")

    leaf.wait_until(5.000001)
    flap(leaf, A, "e2", "e1", "e2", "e1")

    assert leaf.disabled == {"e2"}
