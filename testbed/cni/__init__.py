"""Container networks as a container runtime makes them: CNI conflists, the reference plugins, and a plugin of ours.

Nothing is imported here: the plugin `rxe` is a program that needs little.
"""
