/* What the programs share with testbed/kernel/bfd/offload.py, which reads it here. */
#ifndef LAYOUT_H
#define LAYOUT_H

#define SLOTS 16384 /* sessions of all switches */
#define HOPS 255 /* TTL or hop limit of a packet that no router has forwarded (RFC 5881 section 5) */
#define PACKET 24 /* bytes of a control packet without authentication (RFC 5880 section 4.1) */

/* A session as the ports have it: what they send by themselves, and the packet that they accept without asking. Times are
 * of CLOCK_MONOTONIC. */
struct session {
	__u32 generation; /* of the template that circulates; another one is dropped, 0 is none */
	__u32 ifindex;
	__u64 shortest_ns, spread_ns; /* between two packets: `shortest_ns`, or `spread_ns` more, at random. They leave at
				       * multiples of `spread_ns`: those of several sessions wake a machine once. */
	__u64 detection_ns; /* without a packet for so long the session is down; 0: nobody waits for one */
	__u64 received_at, next_at;
	__u64 received, sent; /* packets; `received` without those that were passed up */
	__u64 random;
	__u64 expected[3]; /* the peer's packet that changes nothing */
};
#endif
