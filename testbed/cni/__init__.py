"""Container networks as a container runtime makes them: CNI conflists, the reference plugins, and a plugin of ours.

Nothing is imported here: the plugin `rxe` is a process of its own for each pod.
"""
