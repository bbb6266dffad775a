"""A packet simulator of load balancing and of HPCC: events on a heap, written from the papers and from IEEE 802.3.

It shares nothing with the lab's programs. Nothing is lost in it: switches have room for all windows.
"""
