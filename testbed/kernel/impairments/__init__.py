"""The BPF programs on the ports of a sealed lab, by which a cable is bad without a trace in a qdisc."""
