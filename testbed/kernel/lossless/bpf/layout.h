/* What the programs share with testbed/kernel/lossless/layout.py, which mirrors it field by field. */
#ifndef LAYOUT_H
#define LAYOUT_H

#define CLASSES 8 /* 802.1p priorities, each with a queue of its own */
#define FLOWS 64  /* queue pairs of a NIC that are paced */
#define PORTS 512
#define SEQUENCES 64 /* queue pairs whose packets a NIC puts in order, each in both roles */
#define SWITCHES 128
#define HOPS 5 /* that telemetry has of a packet */
#define MOST_QUANTA 65535 /* of a pause frame */
#define QUANTUM_BITS 512
#define TIMEOUT_UNIT_NS 4096 /* of an ACK timeout t, which is 2^t of them; 0 is none (InfiniBand, 9.9.2.1.3) */
/* What a packet takes on the link beside its bytes (IEEE 802.3): preamble 8, FCS 4, gap 12. A frame has at least 64 bytes with
 * its FCS. */
#define LINK_OVERHEAD 24
#define LEAST_ON_LINK 84

enum port_kind { UNUSED, SWITCH, NIC, SORTER };
enum watchdog_action { WATCHDOG_DROP, WATCHDOG_FORWARD };
enum algorithm { UNCONTROLLED, DCQCN, TIMELY, HPCC };
enum balancing { ECMP, SPRAY, RANDOM, ADAPTIVE, FLOWLET };
enum miss_action { MISS_KEEP, MISS_CPU, MISS_DROP };
enum cnp_per { PER_QP, PER_ADDRESS, PER_PORT };
enum probe { NO_PROBE, PROBE_WAITS, PROBE_SENT };

/* Thresholds of a queue in bytes; the probability at `max` in 1/65536. Nothing is marked where `max` is 0. `interval_us`: the
 * time between two looks of the controller that moves the probability; 0 is none. */
struct marking {
	__u32 min, max, probability, interval_us;
};

struct port_config {
	__u32 kind, owner; /* owner: the number of the switch */
	__u32 ifindex;
	__u32 sorter; /* of a NIC: the ifindex of the ifb that puts packets in order; 0: none */
	__u32 into; /* the number of the switch at the other end, counted from 1; 0: there is none */
	__u64 ns_per_kib; /* of the link; 0 is unlimited */
	__u64 delay_ns;
	__u8 class_of_dscp[64];
	__u8 class_of_pcp[8];
	__u8 trusts_pcp;
	__u8 lossless; /* bits of classes, as all that follow */
	__u8 sends_pause, honours_pause;
	__u8 strict;
	__u8 cnp_class; /* a class, no bits */
	__u8 notifies;  /* whether the NIC answers CE with CNPs */
	__u8 telemetry; /* whether ports and NICs note what packets meet */
	__u8 algorithm; /* how the NIC controls congestion */
	__u32 quantum[CLASSES];
	struct marking marking[CLASSES];
	__u64 headroom, reserve; /* of each lossless class that comes in */
	__u64 watchdog_poll_ns, watchdog_detect_ns, watchdog_restore_ns; /* detect: 0 is off */
	__u64 watchdog_action;
	/* How fast a NIC takes in what comes; 0 is at once. Above `receive_stop` bytes it stops its peer, up to `receive_go`. */
	__u64 receive_ns_per_kib, receive_stop, receive_go;
	__u64 hold_packets, hold_bytes, hold_ns; /* of a sorter, for each queue pair; its owner is the number of the NIC's port */
	__u8 mac[8];
};

/* What came in by a port in a class and is in the switch. */
struct priority_group {
	__u64 reserve, shared, headroom;
	__u64 max, max_headroom;
	__u64 waiting;	/* packets without a next hop */
	__u64 xoff;	/* whether the peer was told to stop */
	__u64 stock;	/* XON frames that are ready */
	__u64 look_at, look_gap, looked_at; /* when it is looked whether the peer may go on; the gap doubles while nothing moves */
	__u64 xoff_at, again_at; /* the last XOFF frame; when the next one is due while the peer is to stop */
};

struct queue {
	__u64 bytes, packets, max;
	__u64 flow_packets; /* those that wait in the lists of paced queue pairs */
	__u64 reserve, shared; /* of the bytes, those that are charged to the queue: lossy classes of a switch only */
	__u64 sent_bytes, sent_packets;
	__u64 dropped_bytes, dropped_packets, marked;
	__u64 probability, average, averaged_at, adapt_at; /* of its controller; the average in 1/16 bytes */
	__u64 in_bytes, in_packets; /* that came to the queue */
	__s64 deficit;
	__u64 sent_at;
	/* as the peer has it */
	__u64 pause_until, paused_at, paused_ns;
	__u64 episode_at, episode_end, episode_frames;
	__u64 on_to_off; /* pauses that an XON frame ended */
	/* the watchdog: its next poll, what the last one saw, and the time left until it acts */
	__u64 poll_at, polled_frames, polled_on_to_off, polled_paused, left_ns;
	__u64 storms, restored;
	__u64 storm_sent, storm_dropped;	 /* of the queue, while it was in a storm */
	__u64 storm_received, storm_dropped_in; /* of what came in by the port in its class */
	__u64 flushed_packets; /* of those dropped, the ones that had been admitted */
};

struct port_state {
	__u64 link_free;
	__u64 busy;
	__u64 on_wire;
	__u64 packets, bytes; /* in all queues and on the wire */
	__u64 link_bytes;     /* that were sent, with what they take on the link */
	__u64 waiting;	/* bits of classes with packets */
	__u64 paused;	/* bits of classes that are paused */
	__u64 stopped;	/* bits of classes that the peer was told to stop */
	__u64 storming; /* bits of classes in which the watchdog found a storm */
	__u64 holds;	/* bits of classes in which the port itself wants its peer to stop, whatever its buffer has */
	__u64 refreshing; /* bits of classes whose next XOFF frame circulates */
	__u64 turn;	/* the class whose turn it is */
	__u64 no_memory;
	__u64 random;
	__u64 taken_in_at; /* when a NIC has taken in all that came */
	/* The shortest ACK timeout of a queue pair, as it gives it, if it is shorter than a pause, and the link's time then. */
	__u64 least_timeout, timeout_ns_per_kib;
	__u64 ce_packets, cnp_sent, cnp_handled, cnp_ignored;
	__u64 sequences, unsorted; /* queue pairs, each in both roles, whose packets a NIC puts in order; packets of others */
	__u64 draining;		   /* of a sorter: bits of sequences that may have packets to deliver */
	__u64 held, most_held, reordered, gave_up, overflowed, discarded;
	__u64 flows, flow_turn, flow_next, flows_unpaced;
	__u64 missed[CLASSES]; /* dropped for want of a next hop */
	__u64 rx_pause[CLASSES], rx_resume[CLASSES], tx_pause[CLASSES], tx_resume[CLASSES];
	struct priority_group group[CLASSES];
	struct queue queue[CLASSES];
};

struct pool_class {
	__u64 alpha_numerator, alpha_denominator; /* of the free shared buffer that one group or queue may have */
	__u64 xon_offset;
	__u64 reserve; /* of each lossy queue */
};

struct pool {
	__u64 size, used, max;
	/* packets without a next hop */
	__u64 miss_action, cpu_gap_ns, cpu_at; /* the least time between two to the CPU; when the next one may go there */
	__u64 number, lab; /* of the switch; of the lab in this kernel */
	__u8 balancing[CLASSES];
	__u64 flowlet_ns, random;
	__u64 unresolved_at; /* when the kernel last held one */
	__u64 flushing; /* whether it sends those that it held */
	struct pool_class class[CLASSES];
};

/* Pacing of a queue pair at its sender; `alpha` has 20 binary digits after the point. A probe is a packet that asks for an
 * acknowledgement, the time of which gives a round trip. */
struct flow {
	__u8 address[16]; /* of the peer */
	__u32 qpn;	  /* the peer's */
	__u32 class;
	__u64 limited;
	__u64 rate, target; /* bit/s */
	__u64 alpha;
	__u64 next_at, alpha_at, increase_at, bytes;
	__u64 time_stage, byte_stage, cut_at;
	__u64 queued_bytes, queued_packets, sent_bytes, sent_packets, cnps;
	__u32 probe, probe_psn;
	__u64 probe_number, probe_at; /* which of the packets it is, counted from 0; when it was on the link */
	__u64 rtt, rtts, falling; /* the last round trip; how many there were; how many in a row did not rise */
	__s64 gradient; /* of the round trips, in ns */
	/* HPCC */
	__u64 window, reference, stage, use; /* `use` of the path in 1/65536 */
	__u64 acked_bytes, echo_at;
	__u32 next_psn, update_psn;
};

/* DCQCN's parameters; `g`, `initial_alpha` and `min_dec` (the least part of a rate that a cut leaves) have 16 binary digits
 * after the point. `first` is the rate at the first CNP, 0 that of the link; `monitor_ns` the least time between two cuts. */
struct dcqcn {
	__u64 g, alpha_ns, increase_ns, increase_bytes, stages, ai, hai, least, cnp_ns;
	__u64 cnp_per, min_dec, initial_alpha, first, monitor_ns;
	__u64 clamp, clamp_after_time; /* whether the target follows at each cut, or after a rise by the timer, too */
};

/* TIMELY's parameters; `beta` and `ewma` have 16 binary digits after the point. */
struct timely {
	__u64 low_ns, high_ns, least_rtt_ns, beta, ewma, ai, hyper_after, hyper_steps, least;
};

/* HPCC's parameters; `eta` has 16 binary digits after the point. */
struct hpcc {
	__u64 rtt_ns, eta, stages, ai_bytes, least_bytes;
};

struct control {
	struct dcqcn dcqcn;
	struct timely timely;
	struct hpcc hpcc;
};

/* A time in which a port was paused in a class, with gaps of less than EPISODE_GAP_NS. */
struct episode {
	__u64 from_ns, to_ns, frames;
	__u32 port, class;
};
#define EPISODES 4096
#define EPISODE_GAP_NS 10000000
struct counter {
	__u64 value;
};
#endif
