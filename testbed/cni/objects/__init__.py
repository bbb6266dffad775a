"""What lives in an API server elsewhere: network definitions, pools, pods and nodes, in a store of the lab's."""
