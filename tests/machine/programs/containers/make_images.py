"""Makes the images of in_containers.py, of the programs of the machine that this runs on."""

from container_images import docker_save, root_of_machine, tar_of


def test_the_images_are_made(tmp_path):
    tools = root_of_machine(["ibv_rc_pingpong", "ib_write_lat", "ibv_devices"], with_shell=True)
    bare = root_of_machine(["ibv_devices"], with_shell=False)
    own = {"Cmd": ["sleep", "infinity"], "Env": ["PATH=/usr/bin:/bin", "FROM=the image"], "WorkingDir": "/srv"}
    (tmp_path / "tools.tar").write_bytes(tar_of(docker_save("testbed-tests/tools:1", tools, **own)))
    alone = {"Cmd": ["tail", "-f", "/dev/null"], "Env": ["PATH=/usr/bin:/bin"]}
    (tmp_path / "bare.tar").write_bytes(tar_of(docker_save("testbed-tests/bare:1", bare, **alone)))
